package acl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// jsonText reads the JSON form of rules token by token, so that a doubled key
// is seen and an error has a place. HCL's own JSON reader lets too much pass.
type jsonText struct {
	text string
	dec  *json.Decoder
}

func (r *reader) json(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("the rules are not valid UTF-8")
	}
	j := &jsonText{text: text, dec: json.NewDecoder(strings.NewReader(text))}
	if err := j.object(func(at place, word string) error { return r.jsonWord(j, at, word) }); err != nil {
		return err
	}
	if _, err := j.dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%v: something follows the rules", j.at())
	}
	return nil
}

// at returns where the next token begins, roughly.
func (j *jsonText) at() place {
	before := j.text[:min(int(j.dec.InputOffset()), len(j.text))]
	return place{1 + strings.Count(before, "\n"), len(before) - strings.LastIndexByte(before, '\n')}
}

func (j *jsonText) token() (json.Token, error) {
	t, err := j.dec.Token()
	if errors.Is(err, io.EOF) {
		err = errors.New("the text ends early")
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", j.at(), err)
	}
	return t, nil
}

// object reads an object that comes next; member must read the value.
func (j *jsonText) object(member func(place, string) error) error {
	t, err := j.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("%v: an object is expected", j.at())
	}
	return j.members(member)
}

// members reads the rest of an object whose brace was read.
func (j *jsonText) members(member func(place, string) error) error {
	seen := map[string]bool{}
	for j.dec.More() {
		t, err := j.token()
		if err != nil {
			return err
		}
		here := j.at()
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("%v: a key is expected", here)
		}
		if seen[key] {
			return fmt.Errorf("%v: the key %q is there twice", here, key)
		}
		seen[key] = true
		if err := member(here, key); err != nil {
			return err
		}
	}
	_, err := j.token()
	return err
}

// objects reads an object or a list of objects that comes next; began is the token already read.
func (j *jsonText) objects(began json.Token, member func(place, string) error) error {
	switch began {
	case json.Delim('{'):
		return j.members(member)
	case json.Delim('['):
		for j.dec.More() {
			if err := j.object(member); err != nil {
				return err
			}
		}
		_, err := j.token()
		return err
	}
	return fmt.Errorf("%v: an object is expected", j.at())
}

// jsonWord reads what follows a top-level word: a level, or names with their blocks.
func (r *reader) jsonWord(j *jsonText, here place, word string) error {
	t, err := j.token()
	if err != nil {
		return err
	}
	if level, ok := t.(string); ok {
		return r.scalar(here, word, level)
	}
	return j.objects(t, func(at place, name string) error {
		t, err := j.token()
		if err != nil {
			return err
		}
		var settings []setting
		err = j.objects(t, func(at place, key string) error {
			v, err := j.token()
			if err != nil {
				return err
			}
			value, ok := v.(string)
			if !ok {
				return fmt.Errorf("%v: %q is no string", at, key)
			}
			settings = append(settings, setting{at: at, key: key, value: value})
			return nil
		})
		if err != nil {
			return err
		}
		return r.block(at, word, name, settings)
	})
}
