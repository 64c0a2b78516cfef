# gnuplot docs/verbs-windows.gp: draws docs/verbs-windows.svg from the table in verbs.md.
set terminal svg size 640,400 background "white"
set output "docs/verbs-windows.svg"
set logscale x 2
set xlabel "window, KB"
set ylabel "Gb/s, counted"
set yrange [0:1.2]
set key left top
set grid
$data << END
2  0.084 0.110
4  0.159 0.245
8  0.221 0.497
16 0.255 0.616
32 0.311 0.795
64 0.330 1.070
END
plot $data using 1:2 with linespoints lw 2 title "TCP over verbs", \
     $data using 1:3 with linespoints lw 2 title "kernel TCP, same veth", \
     0.461 with lines dashtype 2 title "raw endpoint, 4096 bytes", \
     0.369 with lines dashtype 3 title "TCP over verbs, its own window"
