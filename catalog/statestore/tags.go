package statestore

import (
	"slices"
	"strings"
)

// fewTags is up to how many different tags of a service are counted in its entry. A
// name with more (a tag per instance, say) has them in a table, so that an instance
// more does not cost a copy of them all.
const fewTags = 16

// countTags counts an instance's tags in (by 1) or out (-1) of the entry's summary.
// The summary's list is never changed in place: older States share it.
func (t *serviceEdits) countTags(e *nameEntry, tags []string, by int) {
	if len(tags) == 0 {
		return
	}
	if e.manyTags {
		t.countMany(e, tags, by)
		return
	}
	if e.tagEpoch != t.epoch {
		e.tagCounts, e.tagEpoch = slices.Clone(e.tagCounts), t.epoch
	}
	for i, tag := range tags {
		at, found := slices.BinarySearch(e.summary.Tags, tag)
		switch {
		case found && e.tagCounts[at]+by > 0:
			e.tagCounts[at] += by
		case found:
			e.summary.Tags = slices.Concat(e.summary.Tags[:at], e.summary.Tags[at+1:])
			e.tagCounts = slices.Delete(e.tagCounts, at, at+1)
		case by < 0: // never: what goes was counted when it came
		case len(e.tagCounts) == 0 && len(tags) == 1:
			e.summary.Tags, e.tagCounts = tags, append(e.tagCounts, 1)
		case len(e.tagCounts) == fewTags:
			t.spillTags(e)
			t.countMany(e, tags[i:], by)
			return
		default:
			e.summary.Tags = slices.Concat(e.summary.Tags[:at], tags[i:i+1], e.summary.Tags[at:])
			e.tagCounts = slices.Insert(e.tagCounts, at, 1)
		}
	}
}

// spillTags moves the counts to the table. They stay there until the name goes.
func (t *serviceEdits) spillTags(e *nameEntry) {
	for i, tag := range e.summary.Tags {
		t.tags.Set(tagCount{e.key, tag, e.tagCounts[i]})
	}
	e.manyTags, e.tagCounts = true, nil
}

func (t *serviceEdits) countMany(e *nameEntry, tags []string, by int) {
	changed := false
	for _, tag := range tags {
		item, ok := t.tags.Get(tagCount{service: e.key, tag: tag})
		if !ok {
			item = tagCount{service: e.key, tag: tag}
		}
		if item.count += by; item.count > 0 {
			t.tags.Set(item)
		} else {
			t.tags.Delete(item)
		}
		changed = changed || !ok || item.count == 0
	}
	if !changed {
		return
	}
	union := make([]string, 0, len(e.summary.Tags)+len(tags))
	for item := range t.tags.Seek(func(c tagCount) int { return compare2(e.key, c.service, "", c.tag) }) {
		if item.service != e.key {
			break
		}
		union = append(union, item.tag)
	}
	e.summary.Tags = union
}

// unionTags sets an entry's tags and counts from the lists of its instances.
func (t *serviceEdits) unionTags(e *nameEntry, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	e.summary.Tags = make([]string, 0, len(counts))
	for tag := range counts {
		e.summary.Tags = append(e.summary.Tags, tag)
	}
	slices.SortFunc(e.summary.Tags, strings.Compare)
	e.tagCounts = make([]int, len(counts))
	for i, tag := range e.summary.Tags {
		e.tagCounts[i] = counts[tag]
	}
	if len(counts) > fewTags {
		t.spillTags(e)
	}
}
