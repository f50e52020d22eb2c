// What a restore could not put back, told to the user who restores: on the terminal of `restore`,
// not in the program's files.
//
// Owner: process-wide. Threads: those of the entry. Errors: none; a message that cannot be sent is
// lost.
#pragma once

namespace gpuckpt {

// Until kReportGo `report_fd` is where the supervisor listens; afterwards (-1) there is the log
// alone.
void warn_through(int report_fd);
void warn(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace gpuckpt
