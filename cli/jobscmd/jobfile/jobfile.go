// Package jobfile reads job files on the side of who runs a command, and has the samples that init writes.
package jobfile

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/jobs/jobwire"
	"corbel.dev/corbel/jobs/spec"
	"corbel.dev/corbel/kit/errkind"
	"github.com/spf13/cobra"
)

// File is how a job file is read.
type File struct {
	vars, varFiles []string
	asJSON, strict bool
	old            *bool
}

// Submission is what the job was written as, for those who look at it later.
type Submission struct {
	Source, Format string
	VariableFlags  map[string]string
	Variables      string
}

// Flags gives cmd the flags that say how.
func (j *File) Flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&j.vars, "var", nil, "a variable of the job file, name=value (also NOMAD_VAR_name)")
	f.StringArrayVar(&j.varFiles, "var-file", nil, "a file of variables")
	f.BoolVar(&j.asJSON, "json", false, "the job file is JSON")
	f.BoolVar(&j.strict, "hcl2-strict", true, "variables that the file does not declare are errors")
	j.old = f.Bool("hcl1", false, "")
	_ = f.MarkHidden("hcl1") // it was just made
}

// Read reads a job file, or stdin for -.
func (j *File) Read(e *command.Env, path string) (*jobwire.Job, *Submission, error) {
	if *j.old {
		return nil, nil, command.Usagef("HCL of version 1 is not read here: convert the job file to HCL2")
	}
	text, err := e.FileOrStdin(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read the job file: %w", err)
	}
	if j.asJSON {
		job, err := fromJSON(text)
		return job, &Submission{Source: string(text), Format: "json"}, err
	}
	o := spec.Options{Filename: path, Now: time.Now(), Random: rand.Reader, ReadFile: os.ReadFile,
		Env: map[string]string{}, Lax: !j.strict}
	if path == "-" {
		o.Filename = "stdin"
	}
	sub := &Submission{Source: string(text), Format: "hcl2", VariableFlags: map[string]string{}}
	for _, v := range j.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, nil, command.Usagef("-var %s must be name=value", v)
		}
		o.Variables = append(o.Variables, spec.Assignment{Name: name, Text: value})
		sub.VariableFlags[name] = value
	}
	for _, name := range j.varFiles {
		content, err := command.ReadFile(name)
		if err != nil {
			return nil, nil, fmt.Errorf("read the variables: %w", err)
		}
		o.VarFiles = append(o.VarFiles, spec.File{Name: name, Text: content})
		sub.Variables += string(content) + "\n"
	}
	for _, pair := range e.Environ {
		if rest, ok := strings.CutPrefix(pair, "NOMAD_VAR_"); ok {
			name, value, _ := strings.Cut(rest, "=")
			o.Env[name] = value
		}
	}
	job, err := spec.Parse(text, o)
	if err != nil {
		return nil, nil, fmt.Errorf("the job file has errors:\n%s", errkind.Text(err))
	}
	return job, sub, nil
}

// fromJSON reads a job, alone or as {"Job": ...}.
func fromJSON(text []byte) (*jobwire.Job, error) {
	var wrapped struct{ Job json.RawMessage }
	if json.Unmarshal(text, &wrapped) == nil && len(wrapped.Job) > 0 && !bytes.Equal(wrapped.Job, []byte("null")) {
		text = wrapped.Job
	}
	job, err := jobwire.Decode[jobwire.Job](text)
	if err != nil {
		return nil, fmt.Errorf("the job file is not a job in JSON: %s", errkind.Text(err))
	}
	return job, nil
}
