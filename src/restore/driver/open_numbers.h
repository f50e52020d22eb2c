// Which descriptors this process has open.
//
// Owner: none. Threads: any. Errors: none; of a process that cannot be looked at, none are open.
#pragma once

#include <functional>

namespace gpuckpt::restore {

// Calls `each` with every open number, in no order. `each` may close it.
void each_open_number(const std::function<void(int fd)>& each);

}  // namespace gpuckpt::restore
