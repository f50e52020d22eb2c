// Variables of modules and libraries, as the application asked for them or as a snapshot found them
// in the image.
#pragma once

#include <cstdint>

namespace gpuckpt::device {

void note_library_global(uint64_t library, uint64_t context, const char* symbol, uint64_t address,
                         uint64_t size);
void note_module_global(uint64_t module, const char* symbol, uint64_t address, uint64_t size);

}  // namespace gpuckpt::device
