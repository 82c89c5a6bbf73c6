"""Does everyday work by hvac: vaultclient.py ADDRESS TOKEN PUBLIC-KEY JWT, where the key is PEM and has signed the token for
the subject "job" and the audience "vault". Any failed assertion ends it with code 1."""

import sys

import hvac
from hvac import exceptions

address, token, public_key, jwt = sys.argv[1:]
c = hvac.Client(url=address, token=token)


def fails(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind:
        return
    raise AssertionError(f"{call} did not fail with {kind}")


def as_token(t):
    return hvac.Client(url=address, token=t)


def kv1():
    c.sys.enable_secrets_engine("kv", path="old", options={"version": "1"})
    kv = c.secrets.kv.v1
    kv.create_or_update_secret("a/b", secret={"x": "1"}, mount_point="old")
    assert kv.read_secret("a/b", mount_point="old")["data"] == {"x": "1"}
    assert kv.list_secrets("", mount_point="old")["data"]["keys"] == ["a/"]
    kv.delete_secret("a/b", mount_point="old")
    fails(exceptions.InvalidPath, kv.read_secret, "a/b", mount_point="old")
    c.sys.disable_secrets_engine("old")


def kv2():
    kv = c.secrets.kv.v2
    kv.create_or_update_secret("app", secret={"x": "1"}, cas=0)
    fails(exceptions.InvalidRequest, kv.create_or_update_secret, "app", secret={"x": "2"}, cas=0)
    kv.patch("app", secret={"y": "2"})
    assert kv.read_secret_version("app", raise_on_deleted_version=True)["data"]["data"] == {"x": "1", "y": "2"}
    assert kv.read_secret_version("app", version=1, raise_on_deleted_version=True)["data"]["data"] == {"x": "1"}
    kv.delete_latest_version_of_secret("app")
    fails(exceptions.InvalidPath, kv.read_secret_version, "app", raise_on_deleted_version=True)
    kv.undelete_secret_versions("app", versions=[2])
    kv.update_metadata("app", max_versions=3, custom_metadata={"team": "web"})
    meta = kv.read_secret_metadata("app")["data"]
    assert meta["current_version"] == 2 and meta["custom_metadata"] == {"team": "web"}, meta
    assert kv.list_secrets("")["data"]["keys"] == ["app"]
    kv.destroy_secret_versions("app", versions=[1])
    kv.delete_metadata_and_all_versions("app")
    fails(exceptions.InvalidPath, kv.read_secret_metadata, "app")


def policies():
    rules = 'path "secret/data/mine" { capabilities = ["create", "update", "read"] }'
    c.sys.create_or_update_policy("mine", rules)
    assert c.sys.read_policy("mine")["data"]["rules"] == rules
    assert "mine" in c.sys.list_policies()["data"]["policies"]
    assert c.sys.read_acl_policy("mine")["data"]["policy"] == rules


def tokens():
    made = c.auth.token.create(policies=["mine"], ttl="1h", meta={"k": "v"}, display_name="py")["auth"]
    mine = as_token(made["client_token"])
    assert mine.is_authenticated()
    look = mine.auth.token.lookup_self()["data"]
    assert look["meta"] == {"k": "v"} and "mine" in look["policies"] and look["type"] == "service", look
    mine.secrets.kv.v2.create_or_update_secret("mine", secret={"x": "1"})
    fails(exceptions.Forbidden, mine.secrets.kv.v2.create_or_update_secret, "other", secret={"x": "1"})
    assert mine.sys.get_capabilities(["secret/data/mine"])["capabilities"] == ["create", "read", "update"]
    assert mine.auth.token.renew_self(increment="30m")["auth"]["lease_duration"] == 1800
    assert c.auth.token.lookup_accessor(made["accessor"])["data"]["display_name"] == "token-py"
    assert made["accessor"] in c.auth.token.list_accessors()["data"]["keys"]
    c.auth.token.revoke_accessor(made["accessor"])
    assert not mine.is_authenticated()
    batch = c.auth.token.create(policies=["mine"], type="batch", ttl="1h")["auth"]
    assert batch["token_type"] == "batch" and as_token(batch["client_token"]).is_authenticated()
    c.auth.token.create_or_update_role("r", allowed_policies=["mine"], token_period="1h")
    assert c.auth.token.read_role("r")["data"]["token_period"] == 3600
    assert c.auth.token.create(role_name="r", policies=["mine"])["auth"]["renewable"] is True
    c.auth.token.delete_role("r")


def userpass():
    c.sys.enable_auth_method("userpass")
    c.auth.userpass.create_or_update_user("ann", password="s3cret", policies=["mine"])
    assert c.auth.userpass.list_user()["data"]["keys"] == ["ann"]
    ann = hvac.Client(url=address)
    login = ann.auth.userpass.login("ann", "s3cret")
    assert login["auth"]["metadata"] == {"username": "ann"} and ann.is_authenticated(), login
    fails(exceptions.InvalidRequest, hvac.Client(url=address).auth.userpass.login, "ann", "wrong")
    ann.logout(revoke_token=True)
    return login["auth"]["entity_id"]


def approle():
    c.sys.enable_auth_method("approle")
    c.auth.approle.create_or_update_approle("app", token_policies=["mine"], secret_id_num_uses=1)
    role_id = c.auth.approle.read_role_id("app")["data"]["role_id"]
    wrapped = c.auth.approle.generate_secret_id("app", wrap_ttl="60s")["wrap_info"]["token"]
    secret_id = hvac.Client(url=address).sys.unwrap(wrapped)["data"]["secret_id"]
    machine = hvac.Client(url=address)
    login = machine.auth.approle.login(role_id, secret_id)
    assert login["auth"]["metadata"]["role_name"] == "app" and machine.is_authenticated()
    fails(exceptions.InvalidRequest, machine.auth.approle.login, role_id, secret_id)
    c.auth.approle.delete_role("app")


def jwt_logins():
    c.sys.enable_auth_method("jwt")
    c.auth.jwt.configure(jwt_validation_pubkeys=[public_key])
    c.auth.jwt.create_role("ci", role_type="jwt", user_claim="sub", bound_audiences=["vault"], allowed_redirect_uris=[], token_policies=["mine"], claim_mappings={"sub": "job"})
    assert c.auth.jwt.read_role("ci")["data"]["user_claim"] == "sub"
    assert c.auth.jwt.list_roles()["data"]["keys"] == ["ci"]
    ci = hvac.Client(url=address)
    login = ci.auth.jwt.jwt_login("ci", jwt)
    assert login["auth"]["metadata"] == {"role": "ci", "job": "job"}, login
    ci.token = login["auth"]["client_token"]
    assert ci.is_authenticated()
    fails(exceptions.InvalidRequest, ci.auth.jwt.jwt_login, "ci", jwt[:-4] + "AAAA")


def identity(entity):
    i = c.secrets.identity
    read = i.read_entity(entity)["data"]
    accessor = c.sys.list_auth_methods()["data"]["userpass/"]["accessor"]
    assert read["aliases"][0]["name"] == "ann" and read["aliases"][0]["mount_accessor"] == accessor, read
    made = i.create_or_update_entity("bob", policies=["mine"], metadata={"team": "web"})["data"]["id"]
    alias = i.create_or_update_entity_alias("bob", canonical_id=made, mount_accessor=accessor)["data"]["id"]
    assert i.read_entity_alias(alias)["data"]["canonical_id"] == made
    assert i.read_entity_by_name("bob")["data"]["id"] == made
    assert i.lookup_entity(alias_name="bob", alias_mount_accessor=accessor)["data"]["id"] == made
    group = i.create_or_update_group("web", member_entity_ids=[made, entity], policies=["mine"])["data"]["id"]
    assert sorted(i.read_group(group)["data"]["member_entity_ids"]) == sorted([made, entity])
    assert i.lookup_group(name="web")["data"]["id"] == group
    assert group in i.list_groups()["data"]["keys"] and made in i.list_entities()["data"]["keys"]

    i.delete_entity_alias(alias)
    i.delete_group(group)
    i.delete_entity(made)
    fails(exceptions.InvalidPath, i.read_entity, made)


def wrapping():
    w = c.sys.wrap({"a": "b"}, ttl=60)["wrap_info"]
    assert hvac.Client(url=address).sys.unwrap(w["token"])["data"] == {"a": "b"}
    fails(exceptions.InvalidRequest, hvac.Client(url=address).sys.unwrap, w["token"])


def leases():
    fails(exceptions.InvalidPath, c.sys.list_leases, "nothing/here")
    fails(exceptions.InvalidRequest, c.sys.read_lease, "nothing/here")
    made = c.auth.token.create(policies=["mine"], ttl="1h")["auth"]["client_token"]
    c.sys.revoke_prefix("auth/token/create")
    assert not as_token(made).is_authenticated()


def sys_api():
    assert c.sys.is_initialized() and not c.sys.is_sealed()
    assert c.sys.read_health_status(method="GET")["initialized"]
    assert "secret/" in c.sys.list_mounted_secrets_engines()["data"]
    c.sys.enable_secrets_engine("kv", path="tuned", default_lease_ttl="1h", max_lease_ttl="2h")
    c.sys.tune_mount_configuration("tuned", default_lease_ttl="30m")
    assert c.sys.read_mount_configuration("tuned")["data"]["default_lease_ttl"] == 1800
    c.sys.move_backend("tuned", "moved")
    c.sys.disable_secrets_engine("moved")
    assert c.sys.read_leader_status()["ha_enabled"] is False
    before = c.sys.get_encryption_key_status()["data"]["term"]
    c.sys.rotate_encryption_key()
    assert c.sys.get_encryption_key_status()["data"]["term"] == before + 1

sys_api()
kv1()
kv2()
policies()
tokens()
entity = userpass()
approle()
jwt_logins()
identity(entity)
wrapping()
leases()
print("ALL WELL")
