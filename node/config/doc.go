// Package config turns files, environment and flags into one checked Config.
//
// Sources apply in a fixed order: defaults (of the style and of dev), files in
// the order given, directories in lexical order, CORBEL_* variables, HCL
// fragments, flags. A later source wins for single values; lists append; maps
// merge by key. JSON null counts as "not set".
//
// The struct tags of Config are the schema: `key` names the option (further
// names are old spellings), `def` its default, `opt` its marks (secret, reload),
// `doc` one line for docs/configuration.md, which a test keeps equal to them.
// Nothing else knows a key's name.
//
// Every wrong value and every unknown key of all sources is reported at once, by
// the name users type. Keys that Corbel accepts without acting on them give one
// warning each.
//
// Load reads files and asks the host for its addresses when a template needs
// them; it starts nothing. A loaded Config is never changed again and may be read
// from any goroutine. Files pass maxFileBytes and maxDepth or are refused.
package config
