"""Drives a server with py-consul: client.py HOST PORT NODE. Any failed assertion ends it with code 1."""

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


assert c.status.leader() and node in [m["Name"] for m in c.agent.members()]
for step in (kv, catalog, health, sessions):
    step()
print("ALL WELL")
