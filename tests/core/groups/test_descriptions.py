"""What people are shown of groups."""

from __future__ import annotations

from groups_alone import GROUP, GroupsAlone, Topics, parts

from strandline.core.groups.messages import DescribeGroup, ListGroups


def test_a_group_is_listed_by_its_state() -> None:
    """ListGroups filters by state and type, in any case of letters."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m", "foo")

    def found(**filters: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
        return [tuple(each) for each in alone.ask(ListGroups(**filters)).groups]

    assert found() == [(GROUP, "consumer", "Stable", "Consumer")]
    assert found(states=("stable", "Empty"), types=("CONSUMER",)) == found()
    assert found(states=("Empty",)) == found(types=("classic",)) == []


def test_a_member_is_described_with_what_it_gives_up() -> None:
    """DescribeGroups shows epochs, what is held, revoked and wanted, and how long ago the member was heard of."""
    alone = GroupsAlone(Topics(foo=2))
    alone.join("m1", "foo", client_id="app")
    alone.join("m2", "foo")
    alone.beat("m1")
    alone.commit(member_id="m1", epoch=1)
    alone.now_ms += 250

    shown = alone.ask(DescribeGroup(group_id=GROUP))

    assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Reconciling", 2, 2)
    first, second = shown.members
    assert (first.member_id, first.member_state, first.said.client_id) == ("m1", "unrevoked_partitions", "app")
    assert [parts(*x) for x in (first.assignment, first.revoking)] == [{"foo": [0]}, {"foo": [1]}]
    assert (first.last_heartbeat_age_ms, first.last_commit_age_ms) == (250, 250)
    assert (second.member_state, parts(*second.target_assignment)) == ("unreleased_partitions", {"foo": [1]})
    assert alone.ask(DescribeGroup(group_id="nobody")).code == 69
