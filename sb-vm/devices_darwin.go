package main

import (
	"errors"
	"fmt"
	"os"

	"sb/lib/manifest"
	"sb/sb-vm/machine"

	"github.com/Code-Hex/vz/v3"
	"golang.org/x/sys/unix"
)

// The buffers of the wire. The framework wants the second to be two to four
// times the first, and the default is too small for a single full frame of
// some sizes.
const (
	sendBuffer    = 1 << 20
	receiveBuffer = 4 << 20
)

// configuration is the machine: every device that it has is listed here.
func configuration(m *manifest.Manifest, h *held) (*vz.VirtualMachineConfiguration, error) {
	loader, err := vz.NewLinuxBootLoader(h.kernel, vz.WithInitrd(h.initramfs), vz.WithCommandLine(cmdline("hvc0")))
	if err != nil {
		return nil, err
	}
	const mib = 1 << 20
	config, err := vz.NewVirtualMachineConfiguration(loader, uint(m.Machine.CPUs), uint64(m.Machine.Memory)/mib*mib)
	if err != nil {
		return nil, err
	}
	for _, add := range []struct {
		what string
		to   func(*vz.VirtualMachineConfiguration, *manifest.Manifest, *held) error
	}{
		{"the wire", addWire},
		{"the disks", addDisks},
		{"the console", addConsole},
		{"the ports", addPorts},
		{"the shares", addShares},
		{"the source of entropy", addEntropy},
	} {
		if err := add.to(config, m, h); err != nil {
			return nil, fmt.Errorf("%s: %w", add.what, err)
		}
	}
	ok, err := config.Validate()
	if err == nil && !ok {
		err = errors.New("the framework takes it for invalid and says no more of it")
	}
	return config, err
}

// addWire adds the one network device, whose wire is the frames socket.
func addWire(config *vz.VirtualMachineConfiguration, _ *manifest.Manifest, h *held) error {
	for option, size := range map[int]int{unix.SO_SNDBUF: sendBuffer, unix.SO_RCVBUF: receiveBuffer} {
		if err := unix.SetsockoptInt(int(h.frames.Fd()), unix.SOL_SOCKET, option, size); err != nil {
			return fmt.Errorf("enlarge its buffers: %w", err)
		}
	}
	wire, err := vz.NewFileHandleNetworkDeviceAttachment(h.frames)
	if err != nil {
		return err
	}
	if err := wire.SetMaximumTransmissionUnit(frameworkMTU); err != nil {
		return err
	}
	card, err := vz.NewVirtioNetworkDeviceConfiguration(wire)
	if err != nil {
		return err
	}
	mac, err := vz.NewMACAddress(manifest.GuestMAC)
	if err != nil {
		return err
	}
	card.SetMACAddress(mac)
	config.SetNetworkDevicesVirtualMachineConfiguration([]*vz.VirtioNetworkDeviceConfiguration{card})
	return nil
}

// addDisks adds the image, the writable disk and the kept one, if there is one, in the order in which the guest
// counts on them.
func addDisks(config *vz.VirtualMachineConfiguration, m *manifest.Manifest, _ *held) error {
	var disks []vz.StorageDeviceConfiguration
	for _, d := range []struct {
		path     string
		readOnly bool
	}{{m.Machine.Base, true}, {m.Machine.Disk, false}, {m.Machine.Kept, false}} {
		if d.path == "" {
			continue
		}
		// By default the framework reads around the host's cache, and then sees
		// old content or zeros in a sparse file that was just written.
		file, err := vz.NewDiskImageStorageDeviceAttachmentWithCacheAndSync(d.path, d.readOnly,
			vz.DiskImageCachingModeCached, vz.DiskImageSynchronizationModeFsync)
		if err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
		disk, err := vz.NewVirtioBlockDeviceConfiguration(file)
		if err != nil {
			return fmt.Errorf("%s: %w", d.path, err)
		}
		disks = append(disks, disk)
	}
	config.SetStorageDevicesVirtualMachineConfiguration(disks)
	return nil
}

// addConsole adds the serial port that the kernel speaks on.
func addConsole(config *vz.VirtualMachineConfiguration, _ *manifest.Manifest, h *held) error {
	serial, err := vz.NewFileHandleSerialPortAttachment(h.ends.far.console, h.ends.far.console)
	if err != nil {
		return err
	}
	console, err := vz.NewVirtioConsoleDeviceSerialPortConfiguration(serial)
	if err != nil {
		return err
	}
	config.SetSerialPortsVirtualMachineConfiguration([]*vz.VirtioConsoleDeviceSerialPortConfiguration{console})
	return nil
}

// addPorts adds the ports that sb-vm and the guest's commands speak on, by the
// names that they have everywhere.
func addPorts(config *vz.VirtualMachineConfiguration, _ *manifest.Manifest, h *held) error {
	device, err := vz.NewVirtioConsoleDeviceConfiguration()
	if err != nil {
		return err
	}
	for i, p := range []struct {
		name string
		file *os.File
	}{{machine.Port, h.ends.far.machine}, {machine.GuestPort, h.guest}} {
		serial, err := vz.NewFileHandleSerialPortAttachment(p.file, p.file)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		port, err := vz.NewVirtioConsolePortConfiguration(
			vz.WithVirtioConsolePortConfigurationName(p.name),
			vz.WithVirtioConsolePortConfigurationAttachment(serial))
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		device.SetVirtioConsolePortConfiguration(i, port)
	}
	config.SetConsoleDevicesVirtualMachineConfiguration([]vz.ConsoleDeviceConfiguration{device})
	return nil
}

// addShares adds a virtio-fs device for each share. The framework serves them
// as the user who runs it, and keeps read-only on the host's side.
func addShares(config *vz.VirtualMachineConfiguration, m *manifest.Manifest, _ *held) error {
	var shares []vz.DirectorySharingDeviceConfiguration
	for i, s := range m.Shares {
		dir, err := vz.NewSharedDirectory(s.Host, s.ReadOnly || s.Copy)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Host, err)
		}
		single, err := vz.NewSingleDirectoryShare(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Host, err)
		}
		device, err := vz.NewVirtioFileSystemDeviceConfiguration(guestShare(i).Tag)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Host, err)
		}
		device.SetDirectoryShare(single)
		shares = append(shares, device)
	}
	config.SetDirectorySharingDevicesVirtualMachineConfiguration(shares)
	return nil
}

func addEntropy(config *vz.VirtualMachineConfiguration, _ *manifest.Manifest, _ *held) error {
	device, err := vz.NewVirtioEntropyDeviceConfiguration()
	if err != nil {
		return err
	}
	config.SetEntropyDevicesVirtualMachineConfiguration([]*vz.VirtioEntropyDeviceConfiguration{device})
	return nil
}
