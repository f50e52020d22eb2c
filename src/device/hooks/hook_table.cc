// The hooks of this part as the wrappers of src/intercept call them.
#include "device/hooks/hooks.h"

// Uses what the header above declares.
#include "intercept/generated/hook_table.h"
