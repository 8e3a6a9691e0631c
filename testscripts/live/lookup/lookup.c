/* lookup NAME: asks the C library where a name is and says how long that took. */
#include <netdb.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct timespec a, b;
	struct addrinfo *res;
	clock_gettime(CLOCK_MONOTONIC, &a);
	int rc = getaddrinfo(argc > 1 ? argv[1] : "", 0, 0, &res);
	clock_gettime(CLOCK_MONOTONIC, &b);
	long ms = (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
	printf("%s ms=%ld\n", rc == 0 ? "found" : rc == EAI_NONAME ? "no such name" : gai_strerror(rc), ms);
	return 0;
}
