package confine

import "errors"

func foreign32(world) error  { return errors.ErrUnsupported }
func foreignX32(world) error { return errors.ErrUnsupported }
