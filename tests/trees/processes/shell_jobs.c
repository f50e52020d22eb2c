// A shell with all that shells do: xargs that runs several at a time, jobs in the background, a
// named pipe between them, a coprocess, a here document, a trap.
#include "tree.h"
static const char script[] =
    "mkfifo fifo\n"
    "trap 'echo trapped > trapped' USR2\n"
    "slow() { while [ ! -e go_on ]; do sleep 0.02; done; }\n"
    "seq 1 12 | xargs -P 4 -n 1 sh -c 'while [ ! -e go_on ]; do sleep 0.02; done; echo x$0' > x &\n"
    "x=$!\n"
    "{ echo begin; slow; echo end; } > fifo &\n"
    "writer=$!\n"
    "coproc { while read line; do echo \"co $line\"; done; }\n"
    "exec 5< fifo\n"
    "read first <&5\n"
    "echo one >&${COPROC[1]}; read answer <&${COPROC[0]}\n"
    "[ \"$first $answer\" = 'begin co one' ] || exit 1\n"
    "(sleep 300; exit 7) & killed=$!\n"
    "sleep 0.1\n"
    "echo ready\n"
    "slow\n"
    "read second <&5\n"
    "echo two >&${COPROC[1]}; read answer <&${COPROC[0]}\n"
    "[ \"$second $answer\" = 'end co two' ] || exit 2\n"
    "kill -USR2 $$; [ \"$(cat trapped)\" = trapped ] || exit 3\n"
    "wait $x || exit 4\n"
    "wait $writer || exit 5\n"
    "[ \"$(sort x | md5sum)\" = \"$(seq 1 12 | sed s/^/x/ | sort | md5sum)\" ] || exit 6\n"
    "kill $killed; wait $killed; [ $? = 143 ] || exit 7\n"
    "cat <<END\nsurvived\nEND\n";
int main(void) {
  execlp("bash", "bash", "-c", script, (char*)NULL);
  return 1;
}
