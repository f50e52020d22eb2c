# catch_main: Catch2 2.x and its main(), compiled once; a unit test needs only its own cases and this.
find_package(Catch2 2 REQUIRED)
add_library(catch_main STATIC ${CMAKE_SOURCE_DIR}/tests/catch_main.cc)
target_link_libraries(catch_main PUBLIC Catch2::Catch2)
# The time of these tests is the compiler's: their cases are long and run once.
target_compile_options(catch_main PRIVATE -O0 -g0 INTERFACE -O1)
