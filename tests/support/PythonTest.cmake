# Tests of the program from outside, in Python without packages.
#
#   trireme_python_test(exit_test.py LABEL launch TIMEOUT 60 [SERIAL | PLACES 2] [NEEDS FIXTURE]
#                       [ENVIRONMENT NAME=VALUE …])
#
# gives one ctest entry for each test class of the file: `launch.exit_test.Culprit`. A test class is one whose base, but
# not whose own name, ends in Case. SERIAL: it measures times of a second or less, so nothing else runs beside it.
# PLACES: how many of ctest's parallel places it takes: 2 for many processes, and for bounds of a few seconds, which hold
# beside one other test. NEEDS: a fixture that another test sets up.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

# trireme_test_order(NAME TIMEOUT [PLACES]): ctest starts long tests first, so that no long one runs alone at the end. Those
# of several places come before all others: two places at once are free only while nothing smaller is due.
function(trireme_test_order name timeout)
  set(places 1 ${ARGN})
  list(GET places -1 places)
  math(EXPR cost "${timeout} + 1000 * (${places} - 1)")
  set_tests_properties(${name} PROPERTIES COST ${cost} PROCESSORS ${places})
endfunction()

function(trireme_python_test file)
  cmake_parse_arguments(ARG "SERIAL" "LABEL;TIMEOUT;NEEDS;PLACES" "ENVIRONMENT" ${ARGN})
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(STRINGS ${path} classes REGEX "^class [A-Za-z0-9_]+\\(.*Case\\):")
  list(FILTER classes EXCLUDE REGEX "^class [A-Za-z0-9_]+Case\\(")  # bases of the file's own
  if(NOT classes)
    message(FATAL_ERROR "${path}: no test class")
  endif()
  get_filename_component(stem ${file} NAME_WE)
  foreach(line IN LISTS classes)
    string(REGEX REPLACE "^class ([A-Za-z0-9_]+).*" "\\1" class "${line}")
    set(name ${ARG_LABEL}.${stem}.${class})
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${path} ${class})
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL}
      FIXTURES_REQUIRED "${ARG_NEEDS}"
      ENVIRONMENT "TRIREME=${PROJECT_BINARY_DIR}/bin/trireme;PYTHONPATH=${PROJECT_SOURCE_DIR}/tests/support;PYTHONDONTWRITEBYTECODE=1;TRIREME_SANITIZE=${TRIREME_SANITIZE};${ARG_ENVIRONMENT}")
    trireme_test_order(${name} ${ARG_TIMEOUT} ${ARG_PLACES})
  endforeach()
endfunction()
