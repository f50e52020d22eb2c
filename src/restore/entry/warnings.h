// What a restore could not put back, for whoever restores: their terminal, not the program's files.
#pragma once

namespace gpuckpt {

// Until kReportGo `report_fd` is where the restore driver listens; afterwards (-1) there is the log
// alone.
void warn_through(int report_fd);
void warn(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

}  // namespace gpuckpt
