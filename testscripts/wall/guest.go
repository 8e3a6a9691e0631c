package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
)

// guestVar is set where this program, or its test, runs in the guest.
const guestVar = "SB_WALL_GUEST"

// guest is what runs in the guest; it prints figures as JSON.
func guest(args []string) {
	roles := map[string]func([]string) (map[string]float64, error){
		"hold": holdFlows, "ask": askQueries, "dial": dialNames, "get": getPage, "syns": sendSYNs, "hoard": hoardFlows,
	}
	role := roles[args[0]]
	if role == nil {
		fmt.Fprintln(os.Stderr, "wall: no such role:", args[0])
		os.Exit(1)
	}
	got, err := role(args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "wall: guest %v: %v\n", args, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(got)
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// stdinEnds is closed when nobody wants more.
func stdinEnds() <-chan struct{} {
	end := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	return end
}
