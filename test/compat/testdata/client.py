"""Drives a server with py-consul: client.py HOST PORT NODE, or client.py HOST PORT NODE SECRET for one that denies
by default, where the secret is a management token's. Any failed assertion ends it with code 1."""

import json
import sys
import threading
import time

import consul

host, port, node = sys.argv[1], int(sys.argv[2]), sys.argv[3]
c = consul.Consul(host=host, port=port)


def kv():
    assert c.kv.put("py/a", "one", flags=7) is True
    index, pair = c.kv.get("py/a")
    assert pair["Value"] == b"one" and pair["Flags"] == 7, pair
    assert c.kv.put("py/a", "x", cas=pair["ModifyIndex"] + 100) is False
    assert c.kv.put("py/a", "two", cas=pair["ModifyIndex"]) is True
    assert c.kv.put("py/b/c", b"\x00\xff") is True
    _, keys = c.kv.get("py/", keys=True, separator="/")
    assert keys == ["py/a", "py/b/"], keys
    _, pairs = c.kv.get("py/", recurse=True)
    assert [p["Value"] for p in pairs] == [b"two", b"\x00\xff"], pairs
    changed = threading.Timer(0.2, lambda: consul.Consul(host=host, port=port).kv.put("py/a", "three"))
    changed.start()
    index = pairs[0]["ModifyIndex"]
    _, pair = c.kv.get("py/a", index=index, wait="10s")
    assert pair["Value"] == b"three", pair
    changed.join()
    assert c.kv.delete("py/", recurse=True) is True
    assert c.kv.get("py/a")[1] is None


def catalog():
    assert c.catalog.register("py-node", "10.8.8.8", service={"Service": "py-db", "Port": 1}) is True
    _, nodes = c.catalog.service("py-db")
    assert len(nodes) == 1 and nodes[0]["Address"] == "10.8.8.8", nodes
    assert "py-db" in c.catalog.services()[1]
    assert {n["Node"] for n in c.catalog.nodes()[1]} >= {node, "py-node"}
    assert c.catalog.node("py-node")[1]["Services"]["py-db"]["Port"] == 1
    assert c.catalog.deregister("py-node") is True
    assert c.catalog.node("py-node")[1] is None


def health():
    assert c.agent.service.register("py-web", service_id="py-web-1", port=80, tags=["t"], check=consul.Check.ttl("60s"))
    deadline = time.monotonic() + 10
    index, entries = c.health.service("py-web", passing=True)
    assert entries == [], entries
    passed = threading.Timer(0.2, lambda: consul.Consul(host=host, port=port).agent.check.ttl_pass("service:py-web-1"))
    passed.start()
    while not entries and time.monotonic() < deadline:
        index, entries = c.health.service("py-web", passing=True, index=index, wait="5s")
    passed.join()
    assert len(entries) == 1 and entries[0]["Service"]["Tags"] == ["t"], entries
    assert c.agent.service.deregister("py-web-1")


def sessions():
    mine = c.session.create(name="py", ttl=15, lock_delay=0, behavior="delete")
    assert c.session.info(mine)[1]["Name"] == "py"
    assert mine in [s["ID"] for s in c.session.list()[1]]
    assert c.session.renew(mine)["ID"] == mine
    assert c.kv.put("py-lock", "held", acquire=mine) is True
    other = c.session.create(name="py2")
    assert c.kv.put("py-lock", "stolen", acquire=other) is False
    assert c.session.destroy(mine) is True
    assert c.kv.get("py-lock")[1] is None
    assert c.session.destroy(other) is True
    try:
        c.session.renew(mine)
    except consul.NotFound:
        pass
    else:
        raise AssertionError("a destroyed session was renewed")


def holders():
    """Two clients take turns at one lock; the second watches the key until it is free."""
    first, second = (c.session.create(name=n, ttl=15, lock_delay=0) for n in ("py-first", "py-second"))
    assert c.kv.put("py-turn", "first", acquire=first) is True
    assert c.kv.put("py-turn", "second", acquire=second) is False
    index, pair = c.kv.get("py-turn")
    assert pair["Session"] == first and pair["LockIndex"] == 1, pair
    freed = threading.Timer(0.2, lambda: consul.Consul(host=host, port=port).kv.put("py-turn", "freed", release=first))
    freed.start()
    deadline = time.monotonic() + 30
    while pair.get("Session") and time.monotonic() < deadline:
        index, pair = c.kv.get("py-turn", index=index, wait="5s")
    freed.join()
    assert pair["Value"] == b"freed" and "Session" not in pair, pair
    assert c.kv.put("py-turn", "second", acquire=second) is True
    assert c.kv.get("py-turn")[1]["LockIndex"] == 2
    assert c.session.destroy(second) is True  # behaviour release: the key stays
    assert "Session" not in c.kv.get("py-turn")[1]
    assert c.session.destroy(first) is True and c.kv.delete("py-turn") is True


def watch():
    """A watcher follows an instance through each status, the text of its check, and its end."""
    assert c.agent.service.register("py-watch", service_id="py-watch-1", port=81, check=consul.Check.ttl("60s"))
    steps = [(c.agent.check.ttl_pass, "passing"), (c.agent.check.ttl_warn, "warning"), (c.agent.check.ttl_fail, "critical")]
    index = None
    for mark, want in steps:
        assert mark("service:py-watch-1", notes="now " + want)
        deadline, status = time.monotonic() + 30, None
        while status != want and time.monotonic() < deadline:
            index, entries = c.health.service("py-watch", index=index, wait="5s")
            checks = [k for e in entries for k in e["Checks"] if k["CheckID"] == "service:py-watch-1"]
            status = checks[0]["Status"] if checks else None
        assert status == want and checks[0]["Output"] == "now " + want, checks
        assert len(c.health.service("py-watch", passing=True)[1]) == (want == "passing")
        assert [k["CheckID"] for k in c.health.checks("py-watch")[1]] == ["service:py-watch-1"]
    assert "service:py-watch-1" in [k["CheckID"] for k in c.health.state("critical")[1]]
    assert c.agent.service.deregister("py-watch-1")
    deadline = time.monotonic() + 30
    while entries and time.monotonic() < deadline:
        index, entries = c.health.service("py-watch", index=index, wait="5s")
    assert entries == [], entries


def refused(call):
    try:
        call()
    except consul.ACLPermissionDenied as denied:
        return str(denied)
    raise AssertionError("it was allowed")


def tokens(secret):
    """Policies and tokens made by the root, used by a client that may read and write below one prefix."""
    root = consul.Consul(host=host, port=port, token=secret)
    rules = {  # the library sends rules as JSON
        "key_prefix": {"py-app/": {"policy": "write"}},
        "service": {"py-acl": {"policy": "write"}},
        "node_prefix": {"": {"policy": "read"}},
        "session_prefix": {"": {"policy": "write"}},
    }
    policy = root.acl.policy.create("py-app", rules=rules, description="from Python")
    assert json.loads(root.acl.policy.read(policy["ID"])["Rules"]) == rules
    made = root.acl.token.create(policies_name=["py-app"], description="app")
    mine = consul.Consul(host=host, port=port, token=made["SecretID"])
    assert mine.acl.token.read_self()["AccessorID"] == made["AccessorID"]
    assert mine.kv.put("py-app/a", "1") is True
    assert "lacks permission 'key:write' on \"other\"" in refused(lambda: mine.kv.put("other", "1"))
    refused(lambda: mine.acl.token.list())
    refused(lambda: mine.agent.service.register("py-other"))
    nobody = consul.Consul(host=host, port=port)
    refused(lambda: nobody.kv.put("py-app/a", "2"))
    assert nobody.kv.get("py-app/", recurse=True)[1] is None and nobody.catalog.nodes()[1] == []
    assert mine.agent.service.register("py-acl", service_id="py-acl-1", port=82, check=consul.Check.ttl("60s"))
    assert mine.agent.check.ttl_pass("service:py-acl-1")
    deadline, entries = time.monotonic() + 30, []
    index = None
    while not entries and time.monotonic() < deadline:
        index, entries = mine.health.service("py-acl", passing=True, index=index, wait="5s")
    assert len(entries) == 1 and nobody.health.service("py-acl")[1] == [], entries
    held = mine.session.create(name="py-acl", lock_delay=0)
    assert mine.kv.put("py-app/lock", "x", acquire=held) is True and mine.session.destroy(held) is True
    assert mine.agent.service.deregister("py-acl-1")
    copy = root.acl.token.clone(made["AccessorID"], description="copy")
    assert copy["SecretID"] != made["SecretID"]
    assert root.acl.token.delete(made["AccessorID"]) is True
    assert "ACL not found" in refused(lambda: mine.kv.put("py-app/a", "3"))
    again = consul.Consul(host=host, port=port, token=copy["SecretID"])
    assert again.kv.get("py-app/a")[1]["Value"] == b"1"
    assert root.acl.policy.delete(policy["ID"]) is True
    refused(lambda: again.kv.put("py-app/a", "4"))


if len(sys.argv) == 5:
    tokens(sys.argv[4])
    print("ALL WELL")
    sys.exit()
assert c.status.leader() and node in [m["Name"] for m in c.agent.members()]
for step in (kv, catalog, health, sessions, holders, watch):
    step()
print("ALL WELL")
