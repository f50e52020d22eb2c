// Which descriptors this process has open.
//
// Owner: none. Threads: any. Errors: none; where the numbers cannot be read there are none.
#pragma once

#include <functional>

namespace gpuckpt::restore {

// Calls `each` with every open number, in no order. `each` may close it.
void each_open_number(const std::function<void(int fd)>& each);

}  // namespace gpuckpt::restore
