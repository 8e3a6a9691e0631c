package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// echo ADDR BYTES: sends so much to a server that greets and echoes, reads it all
// back, and lets both sides end.
func echo(addr string, size int) string {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	go func() {
		c.Write(bytes.Repeat([]byte("e"), size))
		c.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	if err != nil {
		return failure(err)
	}
	return fmt.Sprintf("echoed %d", n)
}

// cut ADDR SEND READ: sends a text, or that many bytes, reads that many and cuts
// the connection with a reset.
func cut(addr, text string, read int64) string {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	data := []byte(unescape(text))
	if n, err := strconv.Atoi(text); err == nil {
		data = make([]byte, n)
	}
	wrote := make(chan int, 1)
	write := func() {
		n, _ := c.Write(data)
		wrote <- n
	}
	if len(data) < 64<<10 {
		write()
	} else {
		go write() // it may have to wait for what is read
	}
	n, _ := io.CopyN(io.Discard, c, read)
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	return fmt.Sprintf("cut after %d of %d, %d read", <-wrote, len(data), n)
}

// hold ADDR SEND: says what came first, and keeps the connection until killed.
func hold(addr, text string) string {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return failure(err)
	}
	io.WriteString(c, unescape(text))
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return failure(err)
	}
	first, _, _ := strings.Cut(string(b[:n]), "\n")
	fmt.Println("held", strings.TrimSpace(first))
	for err == nil {
		_, err = c.Read(b)
	}
	return failure(err)
}

func unescape(text string) string {
	return strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(text)
}

// pour ADDR: sends a little, again and again, to a server that echoes, until that
// fails. Its first line says that the server has answered.
func pour(addr string) string {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return failure(err)
	}
	defer c.Close()
	go func() {
		b := make([]byte, 4096)
		for n := 0; ; n++ {
			if _, err := c.Read(b); err != nil {
				return
			}
			if n == 0 {
				fmt.Println("poured")
			}
		}
	}()
	for b := make([]byte, 512); ; time.Sleep(5 * time.Millisecond) {
		switch _, err := c.Write(b); {
		case errors.Is(err, syscall.EPIPE): // the reader has seen the reset
			return "reset"
		case err != nil:
			return failure(err)
		}
	}
}
