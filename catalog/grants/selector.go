package grants

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-bexpr"
	"github.com/hashicorp/go-bexpr/grammar"
)

const (
	// maxSelectorBytes and maxSelectorSteps bound what a selector may cost to read.
	maxSelectorBytes = 16 << 10
	maxSelectorSteps = 200_000
)

// checkSelector refuses what cannot be read and what speaks about claims that no login has.
func checkSelector(selector string, claims map[string]any) error {
	if strings.TrimSpace(selector) == "" {
		return nil
	}
	if len(selector) > maxSelectorBytes {
		return fmt.Errorf("a selector has at most %d bytes", maxSelectorBytes)
	}
	parsed, err := grammar.Parse("", []byte(selector), grammar.MaxExpressions(maxSelectorSteps))
	if err != nil {
		return err
	}
	tree, ok := parsed.(grammar.Expression)
	if !ok {
		return fmt.Errorf("it is a %T", parsed)
	}
	if err := checkTree(tree, claims); err != nil {
		return err
	}
	_, err = selects(selector, claims)
	return err
}

func checkTree(e grammar.Expression, claims map[string]any) error {
	switch e := e.(type) {
	case *grammar.UnaryExpression:
		return checkTree(e.Operand, claims)
	case *grammar.BinaryExpression:
		if err := checkTree(e.Left, claims); err != nil {
			return err
		}
		return checkTree(e.Right, claims)
	case *grammar.MatchExpression:
		return checkPath(e.Selector.Path, claims)
	}
	return fmt.Errorf("only comparisons joined by and, or and not can be used, not %T", e)
}

func checkPath(path []string, claims map[string]any) error {
	var at any = claims
	for _, part := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return fmt.Errorf("%q has no parts", strings.Join(path, "."))
		}
		if at, ok = m[part]; !ok {
			return fmt.Errorf("a login does not have %q", strings.Join(path, "."))
		}
	}
	return nil
}

// selects reports whether a selector matches what a credential says.
func selects(selector string, claims map[string]any) (bool, error) {
	if strings.TrimSpace(selector) == "" {
		return true, nil
	}
	e, err := bexpr.CreateEvaluator(selector, bexpr.WithMaxExpressions(maxSelectorSteps))
	if err != nil {
		return false, err
	}
	return e.Evaluate(claims)
}

// CheckAssertion refuses an assertion about what a credential says that cannot be read, is empty, or speaks of claims
// that there are not.
func CheckAssertion(assertion string, claims map[string]any) error {
	if strings.TrimSpace(assertion) == "" {
		return fmt.Errorf("it is empty")
	}
	return checkSelector(assertion, claims)
}

// Holds reports whether an assertion holds for what a credential says. One that does not fit these claims does not.
func Holds(assertion string, claims map[string]any) bool {
	ok, err := selects(assertion, claims)
	return err == nil && ok
}
