package main

import (
	"slices"
	"strings"

	"sb/lib/say"
)

// isVerb says whether sb-run name is no sandbox.
func isVerb(name string) bool {
	for _, v := range verbs() {
		if v.Name == name {
			return true
		}
	}
	return name == "help" || name == "pause" || name == "resume"
}

// mistyped refuses a target that is a slip away from a verb or a profile: else it
// would be an image's name, which a registry is asked for and a stranger may have.
func mistyped(target string, c *config) error {
	names, _ := c.profiles().Names()
	if slices.Contains(elsewhere, target) && !slices.Contains(names, target) {
		return say.WithHint(say.Usage("%s is no verb of sb-run", target), "sb-run --help lists them; an image of that name is %s:TAG", target)
	}
	for _, v := range verbs() {
		names = append(names, v.Name)
	}
	for _, name := range names {
		if nearly(target, name) {
			return say.WithHint(say.Usage("%s is no profile and no verb: is %s meant?", target, name), "an image of that name is %s:TAG", strings.ToLower(target))
		}
	}
	return nil
}

// elsewhere are verbs of other tools for containers, which nobody means as images.
var elsewhere = []string{"attach", "build", "commit", "create", "exec", "images", "inspect", "kill", "list", "login", "logs", "ls", "ps", "pull", "push", "restart", "rm", "rmi", "run", "start", "stop", "tag", "version"}

// nearly says whether word is name in other letter case, or but for one letter that
// is missing, too many, another one or before its neighbour. The first letter is the
// same: rust is an image, and not trust.
func nearly(word, name string) bool {
	word = strings.ToLower(word)
	if len(word) < 3 || word[0] != name[0] {
		return false
	}
	i := 0
	for i < len(word) && i < len(name) && word[i] == name[i] {
		i++
	}
	w, n := word[i:], name[i:]
	switch len(w) - len(n) {
	case 1:
		return w[1:] == n
	case -1:
		return w == n[1:]
	case 0:
		return w == n || w[1:] == n[1:] || len(w) > 1 && w[0] == n[1] && w[1] == n[0] && w[2:] == n[2:]
	}
	return false
}

// wordTooMany explains a second word: that of a verb with a slip in it, or a command.
func wordTooMany(words []string) error {
	err := say.Usage("%q is one word too many", words[1])
	for _, v := range verbs() {
		if nearly(words[0], v.Name) {
			return say.WithHint(err, "is sb-run %s %s meant?", v.Name, strings.Join(words[1:], " "))
		}
	}
	return say.WithHint(err, "put the command behind --: sb-run %s -- %s", words[0], strings.Join(words[1:], " "))
}
