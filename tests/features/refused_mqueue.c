#include <mqueue.h>
#include "feature.h"
int main(void) {
  char name[64];
  sprintf(name, "/gpuckpt-feature-%d", getpid());
  struct mq_attr a = {.mq_maxmsg = 2, .mq_msgsize = 8};
  mqd_t q = mq_open(name, O_RDWR | O_CREAT, 0600, &a);
  CHECK(q != (mqd_t)-1 && mq_unlink(name) == 0 && mq_send(q, "one", 4, 1) == 0);
  ready_and_wait();
  char text[8];
  CHECK(mq_receive(q, text, 8, NULL) == 4);
  return survived();
}
