# Every target is compiled with these. Asserts stay on in every build type (style: "asserts speak about us").
add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
                    -Wno-unused-parameter -fno-strict-aliasing -fno-common -fvisibility=hidden)
if(UNET_WERROR)
  add_compile_options(-Werror)
endif()
foreach(type RELEASE RELWITHDEBINFO MINSIZEREL)
  string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_${type} "${CMAKE_C_FLAGS_${type}}")
endforeach()
if(UNET_SANITIZE)
  add_compile_options(-fsanitize=${UNET_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${UNET_SANITIZE})
  add_compile_definitions(UNET_IS_INSTRUMENTED)         # <unet/tsan.h>
  if(UNET_SANITIZE MATCHES thread AND CMAKE_C_COMPILER_ID STREQUAL GNU)
    add_compile_options(-Wno-tsan)      # gcc warns of fences, which TSan does not follow
  endif()
endif()
if(UNET_CHECK_LEVELS)
  add_compile_definitions(UNET_CHECK_LEVELS)            # tests/sock/ustack_levels.c
endif()
if(UNET_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
include_directories(${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
add_compile_definitions(_GNU_SOURCE)
