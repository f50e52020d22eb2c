# Builds with sanitizers: -DGPUCKPT_SANITIZE=ON (or address) for AddressSanitizer and UBSan, =thread for ThreadSanitizer.
#
# What is loaded into the application cannot be built so: the run time of a sanitizer would have to be there first, and it may not
# run between park and unpark. gpuckpt_store carries the flags to all that links it (writer, command line, supervisor, tests).
# The simulated GPU is loaded into applications, too, so its unit tests use second libraries: of the PTX engine with all sanitizers, of the
# driver with ThreadSanitizer.
set(GPUCKPT_SANITIZE OFF CACHE STRING "Build the ordinary programs (store, writer, CLI, tests) with sanitizers: ON or address, thread")
set_property(CACHE GPUCKPT_SANITIZE PROPERTY STRINGS OFF ON address thread)

if(GPUCKPT_SANITIZE STREQUAL thread)
  set(sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(GPUCKPT_SANITIZE)
  set(sanitizer_flags -fsanitize=address,undefined -fno-omit-frame-pointer)
endif()

# gpuckpt_sanitize(TARGET): the target, and what links it, are built with the sanitizer.
function(gpuckpt_sanitize target)
  if(GPUCKPT_SANITIZE)
    target_compile_options(${target} PUBLIC ${sanitizer_flags})
    target_link_options(${target} PUBLIC ${sanitizer_flags})
  endif()
endfunction()

# gpuckpt_sanitized_copy(NAME OF KIND...): library NAME from the sources, options and definitions of library OF, built with the
# sanitizer, as is what links it, where that is one of the kinds (address, thread). In other builds NAME is OF.
function(gpuckpt_sanitized_copy name of)
  set(kind ${GPUCKPT_SANITIZE})
  if(kind AND NOT kind STREQUAL thread)
    set(kind address)
  endif()
  if(NOT kind IN_LIST ARGN)
    add_library(${name} ALIAS ${of})
    return()
  endif()
  get_target_property(type ${of} TYPE)
  get_target_property(folder ${of} SOURCE_DIR)
  get_target_property(sources ${of} SOURCES)
  string(REPLACE "_LIBRARY" "" type ${type})
  list(TRANSFORM sources PREPEND ${folder}/ REGEX "^[^$/]")
  add_library(${name} ${type} ${sources})
  foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES INTERFACE_INCLUDE_DIRECTORIES LINK_LIBRARIES
                   INTERFACE_LINK_LIBRARIES)
    get_target_property(value ${of} ${property})
    if(value)
      set_target_properties(${name} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  gpuckpt_sanitize(${name})
  if(kind STREQUAL address)  # PTX has alignment rules of its own, which the engine checks; and there is no RTTI
    target_compile_options(${name} PRIVATE -fno-sanitize=alignment,vptr)
  endif()
endfunction()
