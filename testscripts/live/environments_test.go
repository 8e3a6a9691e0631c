package live

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sb/testscripts/reach"
)

const (
	// agentsVar names the agents whose environments are built, all or some of them.
	// Those of usualAgents always are: all six take emulated machines too long for
	// every run.
	agentsVar = "SB_LIVE_AGENTS"
	// environmentsVar tells the tests, in JSON, where the environments are, and of each
	// that is not there why.
	environmentsVar = "SB_LIVE_ENVIRONMENTS"
)

var usualAgents = []string{"claude", "codex"}

type environments struct {
	Config string // a directory of a user's configuration that has them
	Why    map[string]string
}

// prepareEnvironments builds the environments of the agents whose jobs are to be done,
// as a user's first start of each does.
func prepareEnvironments(data string) error {
	wanted := usualAgents
	switch set := os.Getenv(agentsVar); set {
	case "":
	case "all":
		wanted = reach.Agents
	default:
		wanted = slices.Concat(wanted, strings.FieldsFunc(set, func(r rune) bool { return r == ',' || r == ' ' }))
	}
	made := environments{Why: map[string]string{}}
	var names []string
	for _, name := range reach.Agents {
		if !slices.Contains(wanted, name) {
			made.Why[name] = fmt.Sprintf("skip: its environment is built with %s=all, or =%s", agentsVar, name)
		} else if selected("TestAgentJob", name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		e, err := reach.Open(context.Background(), os.Getenv(binVar), data)
		if err != nil {
			return err
		}
		began := time.Now()
		made.Config = e.Config()
		for name, err := range e.BuildAll(names) {
			made.Why[name] = err.Error()
			if errors.Is(err, reach.ErrUnreachable) {
				made.Why[name] = "skip: " + err.Error()
			}
		}
		if took := time.Since(began); took > time.Minute {
			fmt.Printf("  the environments of %s took %v\n", strings.Join(names, ", "), took.Round(time.Second))
		}
	}
	text, err := json.Marshal(made)
	os.Setenv(environmentsVar, string(text))
	return err
}

// selected reports whether a test, or a subtest of it, is among those to be run.
func selected(names ...string) bool {
	flag.Parse()
	patterns := strings.Split(flag.Lookup("test.run").Value.String(), "/")
	for i, name := range names {
		if i < len(patterns) {
			if found, err := regexp.MatchString(patterns[i], name); err != nil || !found {
				return false
			}
		}
	}
	return true
}

// environmentOf is the text of the profile by which an environment was built, nil if
// it is the built-in one. It skips the test of one that is not there.
func environmentOf(t *testing.T, name string) []byte {
	t.Helper()
	var made environments
	if err := json.Unmarshal([]byte(os.Getenv(environmentsVar)), &made); err != nil {
		t.Fatalf("%s: %v", environmentsVar, err)
	}
	if why, skip := strings.CutPrefix(made.Why[name], "skip: "); skip {
		t.Skip(why)
	} else if why != "" {
		t.Fatal(why)
	}
	text, err := os.ReadFile(filepath.Join(made.Config, "agents", name+".toml"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}
