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

// Call is what a user types to have an agent carry out the order and end:
// sb-run NAME FLAGS -- WORDS. Words that begin with a flag are added to the command of
// the profile; others are the command.
type Call struct{ Flags, Words []string }

// Calls are those of the agents, by their names. Copilot is used with a provider of
// one's own, which is what it does without an account of GitHub's.
var Calls = map[string]Call{
	"claude": {Words: []string{"-p", Order}},
	"codex":  {Words: []string{"-m", "gpt-5.5", "exec", Order}},
	"copilot": {
		Flags: []string{"--allow", "api.anthropic.com", "-e", "COPILOT_OFFLINE=true", "-e", "COPILOT_PROVIDER_TYPE=anthropic", "-e", "COPILOT_PROVIDER_BASE_URL=https://api.anthropic.com",
			"-e", "COPILOT_PROVIDER_API_KEY_COMMAND=printenv ANTHROPIC_API_KEY", "-e", "COPILOT_MODEL=claude-sonnet-4.5"},
		Words: []string{"-p", Order}},
	"gemini":   {Words: []string{"-m", "gemini-2.5-pro", "-p", Order}},
	"opencode": {Words: []string{"opencode", "run", "-m", "anthropic/claude-sonnet-4-5", Order}},
	"pi":       {Words: []string{"--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", Order}},
}
