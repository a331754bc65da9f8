/* What holds a pod's namespaces: waits, and takes in the orphans of the pod's processes. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int number) {
  (void)number;
  while (waitpid(-1, 0, WNOHANG) > 0) {}
}

static void stop(int number) {
  (void)number;
  _exit(0);
}

int main(void) {
  signal(SIGCHLD, reap);
  signal(SIGINT, stop);
  signal(SIGTERM, stop);
  for (;;) pause();
}
