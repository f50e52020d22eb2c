# needs_nobody(TEST...): run by root, these tests drop to user nobody, who must be able to enter the build folder. ./check leaves
# them out by this label where nobody cannot. tests/ordinary_user.py refuses to drop in a test that lacks the label.
function(needs_nobody)
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS needs_nobody)
  set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT GPUCKPT_TEST_NEEDS_NOBODY=1)
endfunction()
