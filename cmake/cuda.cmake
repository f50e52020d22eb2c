# Finds the CUDA headers and nvcc: a toolkit on the machine, else the wheels that ./setup put under .deps/cuda.
# Only headers are needed to build gpuckpt itself; nvcc builds the CUDA C++ examples and tests.
set(_cuda_hints ${CMAKE_SOURCE_DIR}/.deps/cuda $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
find_path(CUDA_INCLUDE_DIR cuda.h HINTS ${_cuda_hints} PATH_SUFFIXES include REQUIRED)
find_program(NVCC nvcc HINTS ${_cuda_hints} PATH_SUFFIXES bin)
message(STATUS "CUDA headers: ${CUDA_INCLUDE_DIR}; nvcc: ${NVCC}")
add_library(cuda_headers INTERFACE)
target_include_directories(cuda_headers SYSTEM INTERFACE ${CUDA_INCLUDE_DIR})
