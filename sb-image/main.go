// Sb-image turns container images into root file systems, keeps them, and
// fetches the kernel that boots them. It takes no part in a running sandbox.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"sb/lib/say"
)

func main() { say.Main("sb-image", run) }

const about = `
Images, kernels and disks for sandboxes. An image is kept as one read-only file
system that every sandbox of it shares.`

func run(args []string) error {
	return say.Verbs("sb-image", about, []say.Verb{
		{Name: "pull", Args: "REF", Text: "fetch an image, print its digest", Run: runPull},
		{Name: "add", Args: "env:NAME", Text: "keep a root file system that is read from stdin", Run: runAdd},
		{Name: "path", Args: "REF|DIGEST", Text: "print where an image's file system lies", Run: runPath},
		{Name: "show", Args: "REF|DIGEST", Text: "print what an image is, as JSON", Run: runShow},
		{Name: "ls", Args: "", Text: "list the images and the saved machines", Run: runLs},
		{Name: "rm", Args: "REF|DIGEST…", Text: "remove images", Run: runRm},
		{Name: "gc", Args: "", Text: "remove what nothing refers to", Run: runGc},
		{Name: "warm", Args: "TARGET", Text: "save the machine that sandboxes start from", Run: runWarm},
		{Name: "kernel", Args: "install|show", Text: "fetch the kernel, print where it lies", Run: runKernel},
		{Name: "disk", Args: "FILE", Text: "make an empty disk", Run: runDisk},
	}, args)
}

// untilSignal runs work with a context that ends with the first signal that
// asks this process to end. What work began it undoes then.
func untilSignal(work func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := work(ctx)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}
