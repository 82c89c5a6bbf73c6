// Package cmdline reads the command lines of documentation, for tests that compare pages with the program. Its
// functions are pure.
package cmdline

import (
	"slices"
	"strings"
)

// Lines are the lines of all ```sh, ```console and ```text blocks.
func Lines(page string) []string {
	var lines []string
	inside := false
	for line := range strings.SplitSeq(page, "\n") {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			inside = slices.Contains([]string{"```sh", "```console", "```text"}, strings.TrimSpace(line))
		case inside:
			lines = append(lines, strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		}
	}
	return lines
}

// Words splits a line at spaces outside single quotes and ends at a comment, & or |.
func Words(line string) []string {
	var words []string
	word, quoted, has := "", false, false
	end := func() {
		if has {
			words = append(words, word)
		}
		word, has = "", false
	}
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, has = !quoted, true
		case quoted || !strings.ContainsRune(" #&|", r):
			word, has = word+string(r), true
		case r == ' ':
			end()
		case !has:
			return words
		default:
			word += string(r)
		}
	}
	end()
	return words
}
