package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const some = 2000 // small files in the measurements of single operations

func (b bench) measurements() []measurement {
	status := func(dir string) error { return git(filepath.Join(dir, "tree"), "status", "--porcelain") }
	return []measurement{
		{"create and write a small file", false, some, b.create},
		{"stat, just made", false, some, each(func(name string) error { _, err := os.Lstat(name); return err })},
		{"stat, warm", false, some, each(func(name string) error { _, err := os.Lstat(name); return err })},
		{"stat, cold", true, some, each(func(name string) error { _, err := os.Lstat(name); return err })},
		{"open and read a small file, cold", true, some, each(readFile)},
		{"open and read a small file, warm", false, some, each(readFile)},
		{"rename", false, some, each(func(name string) error { return os.Rename(name, name+"x") })},
		{"unlink", false, some, each(func(name string) error { return os.Remove(name + "x") })},
		{"walk the tree, cold", true, 0, walk},
		{"walk the tree, warm", false, 0, walk},
		{"git status, cold", true, 0, status},
		{"git status, then", false, 0, status},
		{"git status, warm", false, 0, status},
		{"write at a stretch", false, -b.size, b.write},
		{"read at a stretch, cold", true, -b.size, b.read},
		{"read at a stretch, warm", false, -b.size, b.read},
	}
}

func smallName(dir string, i int) string {
	return filepath.Join(dir, "small", fmt.Sprintf("f%04d", i))
}

func (b bench) create(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "small"), 0o755); err != nil {
		return err
	}
	data := make([]byte, 200)
	for i := range some {
		if err := os.WriteFile(smallName(dir, i), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func each(do func(name string) error) func(dir string) error {
	return func(dir string) error {
		for i := range some {
			if err := do(smallName(dir, i)); err != nil {
				return err
			}
		}
		return nil
	}
}

func readFile(name string) error {
	_, err := os.ReadFile(name)
	return err
}

func walk(dir string) error {
	n := 0
	err := filepath.WalkDir(filepath.Join(dir, "tree"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != filepath.Join(dir, "tree") && d.Name() == ".git" {
			return fs.SkipDir
		}
		n++
		_, err = os.Lstat(path)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("it is empty")
	}
	return err
}

func (b bench) write(dir string) error {
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for range b.size {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Close()
}

func (b bench) read(dir string) error {
	f, err := os.Open(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for range b.size {
		if _, err := f.Read(block); err != nil {
			return err
		}
	}
	return nil
}
