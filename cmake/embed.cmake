# cmake -DIN=file -DOUT=header -DNAME=symbol -P embed.cmake: the bytes of a file as a C array, 16 a line.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUT} "_Alignas(8) static const unsigned char ${NAME}[] = {\n${bytes}\n};\n")
