package main

import "syscall"

// dyingWithUs has a process end with the one that started it: a fuzzer's worker is
// killed.
func dyingWithUs() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
