#include "intercept/gate/launch_note.h"

namespace gpuckpt {

LaunchNote launch_notes[kLaunchNotes];

}  // namespace gpuckpt
