# CUDA C++ programs built with nvcc by hand, as a user would: a shared runtime and PTX, no CMake CUDA language (its compiler
# check wants a GPU toolkit more complete than the wheels are).
#
#   add_cuda_program(TARGET SOURCE file.cu [DIRECTORY dir] [ARCHS 75 90 ...] [FLAGS -G ...] [LIBRARIES file ...])
#
# builds DIRECTORY/TARGET (default ${CMAKE_CURRENT_BINARY_DIR}) with one PTX image for each of ARCHS (default 75).
# The CMake target is build_TARGET: Ninja wants another name than the file's. LIBRARIES are files to link.
function(add_cuda_program target)
  cmake_parse_arguments(arg "" "SOURCE;DIRECTORY" "ARCHS;FLAGS;LIBRARIES" ${ARGN})
  if(NOT arg_DIRECTORY)
    set(arg_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  if(NOT arg_ARCHS)
    set(arg_ARCHS 75)
  endif()
  cmake_path(ABSOLUTE_PATH arg_SOURCE BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  set(targets "")
  foreach(arch ${arg_ARCHS})
    list(APPEND targets -gencode arch=compute_${arch},code=compute_${arch})
  endforeach()
  set(libraries ${arg_LIBRARIES})
  list(TRANSFORM libraries PREPEND "-Xlinker;")  # nvcc does not know names like libcuda.so.1
  set(output ${arg_DIRECTORY}/${target})
  file(MAKE_DIRECTORY ${arg_DIRECTORY})
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${NVCC_COMMAND} -cudart=shared -std=c++17 ${targets} ${arg_FLAGS} -Xcompiler -Wall
            -I${CMAKE_CURRENT_SOURCE_DIR} -MD -MF ${output}.d -o ${output} ${arg_SOURCE} ${libraries}
    DEPENDS ${arg_SOURCE} ${arg_LIBRARIES}
    DEPFILE ${output}.d
    COMMENT "nvcc ${target}"
    VERBATIM)
  add_custom_target(build_${target} ALL DEPENDS ${output})
endfunction()
