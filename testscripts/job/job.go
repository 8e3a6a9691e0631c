// Package job is the job that tests have coding agents do: a bug in a shell script,
// and by which words a user gives each agent the order to mend it.
package job

// Bug is the files of a project, by their names: sum.sh has a bug, and test.sh fails.
var Bug = map[string]string{
	"sum.sh":  "#!/bin/sh\n# prints the sum of two numbers\necho $(($1 - $2))\n",
	"test.sh": "#!/bin/sh\ntest \"$(sh sum.sh 2 3)\" = 5 && echo the test passes || { echo the test fails; exit 1; }\n",
}

// Order is what the agent is told.
const Order = "fix the bug in sum.sh, so that test.sh passes"

// Words are what a user types behind sb-run NAME --secret … -- to have that agent carry
// out the order and end, by the agent's name. Those that begin with a flag are added to
// the command of its profile; others are the command.
var Words = map[string][]string{
	"claude":   {"-p", Order},
	"codex":    {"-m", "gpt-5.5", "exec", Order},
	"gemini":   {"-m", "gemini-2.5-pro", "-p", Order},
	"opencode": {"opencode", "run", "-m", "anthropic/claude-sonnet-4-5", Order},
	"pi":       {"--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", Order},
}
