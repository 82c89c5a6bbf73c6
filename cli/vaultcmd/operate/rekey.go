package operate

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"corbel.dev/corbel/cli/command"
	"corbel.dev/corbel/cli/vaultcmd"
	"github.com/spf13/cobra"
)

// share is an argument, or asked for.
func share(c *vaultcmd.Call, args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		return args[0], nil
	}
	text, err := c.Hidden("Key (will be hidden): ")
	return strings.TrimSpace(text), err
}

// body sends a request whose answer has no envelope and decodes it.
func body(c *vaultcmd.Call, what, method, path string, in map[string]any) (map[string]any, error) {
	a, err := c.Do(method, path, in)
	if err != nil {
		return nil, vaultcmd.Doing(what, err)
	}
	out := map[string]any{}
	if len(a.Raw) == 0 {
		return out, nil
	}
	return out, command.Decode(a.Raw, &out)
}

// told prints some members of an answer, or all of them as -format asks.
func told(c *vaultcmd.Call, out map[string]any, names [][2]string) error {
	if c.Field != "" {
		return c.Member(out)
	}
	if done, err := c.Structured(out); done {
		return err
	}
	var rows [][]string
	for _, n := range names {
		if v, ok := out[n[1]]; ok && v != nil && v != "" {
			rows = append(rows, []string{n[0], vaultcmd.Shown(v)})
		}
	}
	return c.Pairs(rows)
}

// operatorRekey builds operator rekey.
func operatorRekey(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "rekey [KEY]", "Make new shares of the unseal key, or of the recovery key", 0, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			f := cmd.Flags()
			start, cancel, status := f.Bool("init", false, "begin"), f.Bool("cancel", false, "give up"),
				f.Bool("status", false, "show the progress")
			shares, threshold := f.IntP("key-shares", "n", 5, "number of new shares"),
				f.IntP("key-threshold", "t", 3, "how many of them are needed to unseal")
			verify, proving := f.Bool("verify", false,
				"with -init: the new shares hold once enough were given back; else: give one of them"), new(bool)
			nonce, target := f.String("nonce", "", "the attempt that the share is for"),
				f.String("target", "barrier", "barrier or recovery")
			pgp := f.StringSlice("pgp-keys", nil, "files of OpenPGP keys, one for each share, to encrypt the new shares for")
			backup := f.Bool("backup", false, "with -init and -pgp-keys: the server keeps the encrypted shares")
			retrieve, forget := f.Bool("backup-retrieve", false, "show the encrypted shares that the server keeps"),
				f.Bool("backup-delete", false, "make the server forget them")
			return func(c *vaultcmd.Call, args []string) error {
				path := "sys/rekey/"
				switch *target {
				case "barrier":
				case "recovery", "hsm":
					path = "sys/rekey-recovery-key/"
				default:
					return command.Usagef("-target must be barrier or recovery")
				}
				*proving = *verify && !*start
				step := "init"
				if *proving {
					step = "verify"
				}
				switch {
				case *start:
					body := map[string]any{"secret_shares": *shares, "secret_threshold": *threshold, "require_verification": *verify,
						"backup": *backup}
					if err := putPGP(body, "pgp_keys", "pgp-keys", *pgp); err != nil {
						return err
					}
					return rekeyStep(c, "initializing rekey", "PUT", path+"init", body)
				case *cancel:
					if _, err := body(c, "canceling rekey", "DELETE", path+step, nil); err != nil {
						return err
					}
					return c.Success("Canceled rekeying (if it was started)")
				case *retrieve:
					return showBackup(c, backupPath(path))
				case *forget:
					if _, err := body(c, "deleting the backup", "DELETE", backupPath(path), nil); err != nil {
						return err
					}
					return c.Success("Deleted stored keys (if they existed)")
				case *status:
					return rekeyStep(c, "reading rekey status", "GET", path+step, nil)
				}
				return rekeyShare(c, path, step, *nonce, args)
			}
		})
}

// backupPath is where the encrypted shares of a kind are.
func backupPath(path string) string {
	if path == "sys/rekey/" {
		return "sys/rekey/backup"
	}
	return "sys/rekey/recovery-key-backup"
}

// showBackup prints encrypted shares by their keys' fingerprints.
func showBackup(c *vaultcmd.Call, path string) error {
	out, err := body(c, "retrieving the backup", "GET", path, nil)
	if err != nil {
		return err
	}
	data, _ := out["data"].(map[string]any)
	if c.Field != "" {
		return c.Member(data)
	}
	if done, err := c.Structured(data); done {
		return err
	}
	rows := [][]string{{"Nonce", vaultcmd.Shown(data["nonce"])}}
	keys, _ := data["keys_base64"].(map[string]any)
	for _, print := range slices.Sorted(maps.Keys(keys)) {
		list, _ := keys[print].([]any)
		for _, share := range list {
			rows = append(rows, []string{print, vaultcmd.Shown(share)})
		}
	}
	return c.Pairs(rows)
}

func rekeyShare(c *vaultcmd.Call, path, step, nonce string, args []string) error {
	if nonce == "" {
		st, err := body(c, "reading rekey status", "GET", path+step, nil)
		if err != nil {
			return err
		}
		if nonce = vaultcmd.PlainText(st["nonce"]); nonce == "" || st["started"] == false {
			return errors.New("no rekey is in progress: start one with -init")
		}
	}
	key, err := share(c, args)
	if err != nil {
		return err
	}
	if step == "init" {
		step = "update"
	}
	return rekeyStep(c, "posting the share", "PUT", path+step, map[string]any{"key": key, "nonce": nonce})
}

func rekeyStep(c *vaultcmd.Call, what, method, path string, in map[string]any) error {
	out, err := body(c, what, method, path, in)
	if err != nil {
		return err
	}
	keys, _ := out["keys_base64"].([]any)
	if len(keys) == 0 || c.Format != "table" || c.Field != "" {
		return told(c, out, [][2]string{{"Nonce", "nonce"}, {"Started", "started"}, {"Rekey Progress", "progress"},
			{"Required", "required"}, {"New Shares", "n"},
			{"New Threshold", "t"}, {"Verification Required", "verification_required"},
			{"Verification Nonce", "verification_nonce"}, {"PGP Fingerprints", "pgp_fingerprints"}, {"Complete", "complete"}})
	}
	var b strings.Builder
	prints, _ := out["pgp_fingerprints"].([]any)
	for i, k := range keys {
		name := fmt.Sprintf("Key %d", i+1)
		if i < len(prints) {
			name += " fingerprint: " + vaultcmd.Shown(prints[i]) + "; value"
		}
		fmt.Fprintf(&b, "%s: %s\n", name, vaultcmd.Shown(k))
	}
	fmt.Fprintf(&b, "\nOperation nonce: %s\n", vaultcmd.Shown(out["nonce"]))
	if out["verification_required"] == true {
		fmt.Fprintf(&b, "\nThe present shares hold until enough of the new ones were given back:\n`operator rekey -verify "+
			"-nonce=%s`\n", vaultcmd.Shown(out["verification_nonce"]))
	} else {
		b.WriteString("\nThe new shares hold from now on, and the former ones open nothing any more.\n")
	}
	return c.Printf("%s", b.String())
}

// rootRows are what generate-root shows of an attempt.
var rootRows = [][2]string{
	{"Nonce", "nonce"}, {"Started", "started"}, {"Progress", "progress"}, {"Required", "required"},
	{"Complete", "complete"}, {"OTP", "otp"}, {"OTP Length", "otp_length"},
	{"PGP Fingerprint", "pgp_fingerprint"}, {"Encoded Token", "encoded_token"},
}

// operatorGenerateRoot builds operator generate-root.
func operatorGenerateRoot(e *command.Env) *cobra.Command {
	return vaultcmd.With(e, "generate-root [KEY]", "Make a root token with shares", 0, 1,
		func(cmd *cobra.Command) func(*vaultcmd.Call, []string) error {
			f := cmd.Flags()
			start, cancel, status := f.Bool("init", false, "begin"), f.Bool("cancel", false, "give up"),
				f.Bool("status", false, "show the progress")
			decode, draw := f.String("decode", "", "decode a token with its one-time password"),
				f.Bool("generate-otp", false, "generate a one-time password")
			otp, nonce, pgp := f.String("otp", "", "one-time password"),
				f.String("nonce", "", "the attempt that the share is for"),
				f.String("pgp-key", "", "file of the OpenPGP key to encrypt the token for")
			const path = "sys/generate-root/"
			step := func(c *vaultcmd.Call, what, method, path string, in map[string]any) error {
				out, err := body(c, what, method, path, in)
				if err != nil {
					return err
				}
				return told(c, out, rootRows)
			}
			return func(c *vaultcmd.Call, args []string) error {
				switch {
				case *decode != "":
					token, err := decodeRoot(*decode, *otp)
					if err != nil {
						return err
					}
					return c.Printf("%s\n", token)
				case *draw:
					st, err := body(c, "asking how long the password is to be", "PUT", path+"attempt", map[string]any{})
					if err != nil {
						return err
					}
					if _, err := body(c, "giving the attempt up", "DELETE", path+"attempt", nil); err != nil {
						return err
					}
					return c.Printf("%s\n", vaultcmd.Shown(st["otp"]))
				case *start:
					body := map[string]any{}
					vaultcmd.Put(body, "otp", *otp)
					if err := putOnePGP(body, "pgp_key", "pgp-key", *pgp); err != nil {
						return err
					}
					return step(c, "initializing root generation", "PUT", path+"attempt", body)
				case *cancel:
					if _, err := body(c, "canceling root generation", "DELETE", path+"attempt", nil); err != nil {
						return err
					}
					return c.Success("Root token generation canceled (if it was started)")
				case *status:
					return step(c, "reading root generation status", "GET", path+"attempt", nil)
				}
				if *nonce == "" {
					st, err := body(c, "reading root generation status", "GET", path+"attempt", nil)
					if err != nil {
						return err
					}
					if st["started"] != true {
						return errors.New("no root generation is in progress: start one with -init")
					}
					*nonce = vaultcmd.PlainText(st["nonce"])
				}
				key, err := share(c, args)
				if err != nil {
					return err
				}
				return step(c, "posting the share", "PUT", path+"update", map[string]any{"key": key, "nonce": *nonce})
			}
		})
}

// decodeRoot takes the password off a token.
func decodeRoot(encoded, otp string) (string, error) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(encoded), "="))
	if err != nil {
		return "", fmt.Errorf("the encoded token is no base64: %w", err)
	}
	if len(raw) != len(otp) {
		return "", command.Usagef("-otp has %d characters, and the token %d", len(otp), len(raw))
	}
	subtle.XORBytes(raw, raw, []byte(otp))
	return string(raw), nil
}
