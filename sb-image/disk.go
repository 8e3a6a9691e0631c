package main

import (
	"fmt"
	"strconv"
	"strings"

	"sb/lib/say"
	"sb/sb-image/ext4"
)

const defaultDisk = "16g"

func runDisk(args []string) error {
	flags := say.Flags("sb-image disk", "[--size SIZE] FILE", `
Makes FILE, an empty disk with an ext4 file system. It takes less than a
megabyte until something is written to it.`)
	size := flags.String("size", defaultDisk, "as large as it may become: a number with m, g or t behind it")
	if err := say.Parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return say.Usage("disk takes one file, not %d", flags.NArg())
	}
	n, err := parseSize(*size)
	if err != nil {
		return say.Usage("--size: %v", err)
	}
	if err := ext4.Make(flags.Arg(0), n); err != nil {
		return fmt.Errorf("make a disk: %w", err)
	}
	return nil
}

// parseSize reads a size as Docker's flags have it: 512m, 16g, 1t.
func parseSize(s string) (int64, error) {
	if s == "" {
		return 0, fmt.Errorf("no size was given")
	}
	shift := strings.IndexByte("bkmgt", s[len(s)-1]|0x20)
	number := s[:len(s)-1]
	if shift < 2 {
		return 0, fmt.Errorf("%q is no size: a number and m, g or t, such as %s", s, defaultDisk)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > ext4.Max>>(10*shift) || n<<(10*shift) < ext4.Min {
		return 0, fmt.Errorf("%q is no size of a disk: 1g is the smallest, 1t the largest", s)
	}
	return n << (10 * shift), nil
}
