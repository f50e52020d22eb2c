# Tests that run one CUDA program in every flavour, from one list:
#   sim      on the simulated GPU alone                 preload  the same with gpuckpt in front of it
#
#   add_cuda_tests(NAME PROGRAM SUCCESS [ENVIRONMENT A=B ...])
#
# adds NAME.sim and NAME.preload; each passes when the program ends with 0 and its last line matches SUCCESS (a regular expression).
set(SIMGPU_DRIVER_LIBRARY ${CMAKE_BINARY_DIR}/lib/simgpu/libcuda.so.1)
set(SIMGPU_RUNTIME_LIBRARY ${CMAKE_BINARY_DIR}/lib/simgpu/libcudart.so.13)

function(add_cuda_tests name program success)
  cmake_parse_arguments(arg "" "" "ENVIRONMENT" ${ARGN})
  set(sim "LD_PRELOAD=${SIMGPU_DRIVER_LIBRARY} ${SIMGPU_RUNTIME_LIBRARY}")
  set(preload "LD_PRELOAD=${CMAKE_BINARY_DIR}/lib/libgpuckpt.so ${SIMGPU_RUNTIME_LIBRARY}")
  foreach(flavour sim preload)
    add_test(NAME ${name}.${flavour} COMMAND
      ${CMAKE_SOURCE_DIR}/tests/expect ${success}
      env ${${flavour}} GPUCKPT_DRIVER=${SIMGPU_DRIVER_LIBRARY} ${arg_ENVIRONMENT} ${program})
    set_tests_properties(${name}.${flavour} PROPERTIES LABELS "runtime;${flavour}" TIMEOUT 60)
  endforeach()
endfunction()
