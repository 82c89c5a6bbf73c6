// Package mfa asks logins for a second factor: a one-time password by time (TOTP) of a key that the entity has.
//
// Methods say how codes are made, enforcements which logins need one of which methods; both are records below
// identity/ of their namespace and hold for its mounts. A login that needs one is done in one request (X-Vault-MFA) or
// in two: the first gets what is lacking in the place of a token, the second (sys/mfa/validate) brings the code.
//
// What holds always: no token is made before all enforcements are satisfied. A code is good once: the step of time that
// it is of is stored with the token, in one commit. Logins that wait are in the memory of the active server, bounded
// and for 5 minutes: after a failover people log in again. Wrong codes are counted per entity and method, also in
// memory.
package mfa
