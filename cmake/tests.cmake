# unet_test(NAME SOURCES... LIBS libs... [LABELS labels...] [TIMEOUT s] [SECONDS s]): one CMocka program, one ctest.
#
# TIMEOUT ends what hangs; nothing that works should come near it, on a slow machine under sanitizers with others beside it
# (600; in such company a test takes ten times as long as alone).
#
# A test that cannot run here prints "skipped: REASON" and returns 77, or calls CMocka's skip(); the reason must be on the
# list tests/expected_skips.txt.
#
# Labels that ./check knows: fuzz (run under ASan only), preload (real programs under the shim; not under sanitizers),
# noasan (any other reason not to run under ASan), vm (in virtual machines; once, with --long only), long (with --long only),
# hostile (what takes what others send: runs under ASan without --long, too, as base, arp, ip, udp, tcp and netstack do).
# And programs: real ones, both sides over the shim, and one.
#
# The label waits marks a test that mostly waits for clocks and other processes: it takes one processor of ctest's count, any
# other test UNET_TEST_PROCESSORS, so that `ctest -j` of that many times the machine's cores keeps them busy, and no more.
# SECONDS says how long a test takes, if that is long: the longest begin first.
set(UNET_TEST_PROCESSORS 3)
find_library(CMOCKA_LIBRARY cmocka)

function(unet_test_properties name)
  cmake_parse_arguments(T "" "TIMEOUT;SECONDS" "LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600)
  endif()
  if(NOT T_SECONDS)
    set(T_SECONDS 0)
  endif()
  set(processors ${UNET_TEST_PROCESSORS})
  if("waits" IN_LIST T_LABELS)
    set(processors 1)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${T_LABELS}" SKIP_RETURN_CODE 77
                       PROCESSORS ${processors} COST ${T_SECONDS})
  if(UNET_CHECK_LEVELS AND "${T_LABELS}" MATCHES "sock|shim")       # tests/sock/ustack_levels.c
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "UNET_CHECK_LEVELS=1")
  endif()
endfunction()

function(unet_test name)
  cmake_parse_arguments(T "" "TIMEOUT;SECONDS" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT CMOCKA_LIBRARY)
    return()
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} ${CMOCKA_LIBRARY})
  add_test(NAME ${name} COMMAND ${name})
  unet_test_properties(${name} LABELS ${T_LABELS} TIMEOUT ${T_TIMEOUT} SECONDS ${T_SECONDS})
endfunction()

# unet_test_library(NAME SOURCES... LIBS libs...): what several CMocka programs share, compiled once.
function(unet_test_library name)
  cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT CMOCKA_LIBRARY)
    return()
  endif()
  add_library(${name} STATIC ${T_SOURCES})
  target_link_libraries(${name} PUBLIC ${T_LIBS} ${CMOCKA_LIBRARY})
endfunction()

# unet_script_test(NAME SCRIPT [ARGS...] [LABELS labels...] [TIMEOUT s] [SECONDS s]): a script, run with UNET_BUILD and UNET_SOURCE set.
function(unet_script_test name script)
  cmake_parse_arguments(T "" "TIMEOUT;SECONDS" "ARGS;LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${T_ARGS})
  unet_test_properties(${name} LABELS ${T_LABELS} TIMEOUT ${T_TIMEOUT} SECONDS ${T_SECONDS})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "UNET_BUILD=${PROJECT_BINARY_DIR};UNET_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()
