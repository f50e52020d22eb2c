# Finds the CUDA headers and nvcc: a toolkit on the machine, else the wheels that ./setup put under .deps/cuda.
# Only headers are needed to build gpuckpt itself; nvcc builds the CUDA C++ examples and tests.
set(_cuda_hints ${CMAKE_SOURCE_DIR}/.deps/cuda $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
find_path(CUDA_INCLUDE_DIR cuda.h HINTS ${_cuda_hints} PATH_SUFFIXES include REQUIRED)
find_program(NVCC nvcc HINTS ${_cuda_hints} PATH_SUFFIXES bin)
# With the compiler of everything else: the machine's standard one can be too new for nvcc.
set(NVCC_COMMAND ${CMAKE_COMMAND} -E env NVCC_CCBIN=${CMAKE_CXX_COMPILER} ${NVCC})
message(STATUS "CUDA headers: ${CUDA_INCLUDE_DIR}; nvcc: ${NVCC}")
add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE ${CUDA_INCLUDE_DIR})
