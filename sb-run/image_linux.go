package main

import (
	"os/exec"
	"runtime"
	"syscall"
)

// endWithUs has cmd told to end when this process ends, however it does. The
// kernel goes by the thread that starts it, which is kept until then.
func endWithUs(cmd *exec.Cmd) (done func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return runtime.UnlockOSThread
}
