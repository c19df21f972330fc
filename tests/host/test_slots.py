"""Chains of slots never overlap, and none is lost."""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from octavo.host.slots import SlotTable


class SlotMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.table = SlotTable(20)
        self.chains = {}

    @rule(counts=st.lists(st.integers(1, 4), max_size=5))
    def take(self, counts):
        if sum(counts) <= self.table.num_free:
            chains = self.table.take(counts)
            assert [len(chain) for chain in chains] == counts
            self.chains |= {chain[0]: list(chain) for chain in chains}

    @rule(which=st.sets(st.integers(0, 19)))
    def free(self, which):
        heads = sorted(which & self.chains.keys())
        self.table.free(heads)
        for head in heads:
            del self.chains[head]

    @rule(which=st.sets(st.integers(0, 19)))
    def free_all_but(self, which):
        self.chains = {head: chain for head, chain in self.chains.items() if head in which}
        self.table.free_all_but(dict.fromkeys(self.chains, 0))

    @invariant()
    def each_slot_is_free_or_in_one_chain(self):
        assert self.table.chains(self.chains) == [tuple(c) if len(c) == 1 else c for c in self.chains.values()]
        used = [slot for chain in self.chains.values() for slot in chain]
        assert sorted(used + self.table.free_slots()) == list(range(20))
        assert self.table.num_free == 20 - len(used)


TestSlots = SlotMachine.TestCase
TestSlots.settings = settings(max_examples=25)


def test_first_slots_are_neighbours():
    assert SlotTable(9).take([3, 1, 2]) == [[0, 1, 2], [3], [4, 5]]
