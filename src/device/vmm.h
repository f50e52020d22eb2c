// The application's own virtual memory mappings.
#pragma once

namespace gpuckpt::device {

// Name of the call whose effect is alive and could not be restored; null: none.
const char* vmm_in_use();

}  // namespace gpuckpt::device
