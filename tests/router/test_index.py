"""A fleet's index answers for each engine what a view of that engine alone would."""

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.errors import InputError
from octavo.events import AllBlocksCleared, BlockRemoved, BlockStored, GroupView, PublishedGroup, PublishedPlan
from octavo.router import FleetIndex, Indexes
from octavo.specs import CacheDType, CrossAttentionSpec, FullAttentionSpec, MambaSpec
from octavo.testing import strategies

HASH_BLOCK_SIZE = 4
PROMPT_BLOCKS = 24
HASHES = list(range(100, 100 + PROMPT_BLOCKS))
NAMES = ["a", "b", "c"]
TWO = NAMES[:2]
LAYERS = strategies.layer_sets(block_sizes=st.sampled_from([4, 8, 12]))
LENGTHS = st.integers(0, 4 * PROMPT_BLOCKS + 1)
MEDIA = st.sampled_from(["GPU", "CPU", "STORAGE", "redis"])


class Fleet(RuleBasedStateMachine):
    """Every engine's events go to the index, and to a view of its own."""

    @initialize(
        layers=strategies.layer_sets(block_sizes=st.sampled_from([4, 8, 12])), clears=st.booleans(), data=st.data()
    )
    def begin(self, layers, clears, data):
        self.specs = list(dict.fromkeys(layers.values()))
        drafts = [i for i in range(len(self.specs)) if data.draw(st.booleans())]
        self.values = {"hash_block_size": HASH_BLOCK_SIZE, "draft_groups": drafts, "clears_all_media": clears}
        self.index = FleetIndex(self.specs, **self.values)
        self.views = {}
        self.silent = set()
        for name in TWO:
            self.come_or_go(name, is_complete=True)

    @rule(name=st.sampled_from(NAMES), is_complete=st.booleans())
    def come_or_go(self, name, is_complete):
        if name in self.views:
            self.index.remove_engine(name)
            del self.views[name]
            self.silent.discard(name)
        else:
            self.index.add_engine(name, is_complete=is_complete)
            self.views[name] = GroupView(self.specs, is_complete=is_complete, **self.values)

    @precondition(lambda self: self.views)
    @rule(data=st.data(), medium=MEDIA, ownership=st.sampled_from([None, "disk"]), with_tokens=st.booleans())
    def store(self, data, medium, ownership, with_tokens):
        group = data.draw(st.integers(0, len(self.specs)))  # one more than there are
        own = self.specs[min(group, len(self.specs) - 1)].block_size
        size = data.draw(st.sampled_from([own, own, own, 2 * own, HASH_BLOCK_SIZE, 0, 6]))
        start = data.draw(st.integers(0, PROMPT_BLOCKS))
        stop = data.draw(st.integers(0, PROMPT_BLOCKS))
        ratio = max(1, (size or own) // HASH_BLOCK_SIZE)
        hashes = HASHES[ratio - 1 :: ratio][start // ratio : 1 + stop // ratio]
        self.tell(data, self.stored(hashes, group, size, medium, ownership, with_tokens))

    @precondition(lambda self: self.views)
    @rule(data=st.data(), medium=MEDIA, num_blocks=st.integers(1, PROMPT_BLOCKS))
    def store_prompt(self, data, medium, num_blocks):
        """Of all groups, so that there is something to resume."""
        ratios = [(spec.block_size, spec.block_size // HASH_BLOCK_SIZE) for spec in self.specs]
        self.tell(
            data,
            *(
                self.stored(HASHES[ratio - 1 : num_blocks : ratio], group, size, medium, None, True)
                for group, (size, ratio) in enumerate(ratios)
            ),
        )

    @precondition(lambda self: self.views)
    @rule(data=st.data(), medium=MEDIA, ownership=st.sampled_from([None, "disk"]))
    def remove(self, data, medium, ownership):
        group = data.draw(st.none() | st.integers(0, len(self.specs) - 1))
        hashes = data.draw(st.lists(st.sampled_from(HASHES), max_size=4))
        self.tell(data, BlockRemoved(block_hashes=hashes, medium=medium, group_idx=group, ownership=ownership))

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def clear(self, data):
        self.tell(data, AllBlocksCleared())

    @precondition(lambda self: self.views)
    @rule(really=st.sampled_from([False] * 3 + [True]))
    def move(self, really):
        """As if all plans had grown, by nothing here."""
        if not really:
            return
        index = FleetIndex(self.specs, **self.values)
        for name in self.views:
            self.index.move_engine(name, index)
        self.index = index

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def resync(self, data):
        name = self.some_engine(data)
        self.index.resync(name)
        self.views[name].resync()
        self.silent.discard(name)

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def silence(self, data):
        """Until it tells something."""
        name = self.some_engine(data)
        self.index.silence(name)
        self.silent.add(name)

    @precondition(lambda self: self.views)
    @rule(data=st.data(), media=st.none() | st.sets(MEDIA, min_size=1), num_tokens=LENGTHS)
    def ask(self, data, media, num_tokens):
        encoder = HASHES[: data.draw(st.integers(0, 4))]
        question = {"media": media, "encoder_hashes": encoder, "num_encoder_tokens": 4 * len(encoder)}
        engines = data.draw(st.sets(st.sampled_from(sorted(self.views)), min_size=1))
        alone = {name: self.views[name].longest_resume(HASHES, num_tokens, **question).num_tokens for name in engines}
        together = self.index.resumes(HASHES, num_tokens, engines=engines, **question)
        assert together == {name: tokens for name, tokens in alone.items() if tokens and name not in self.silent}

    @precondition(lambda self: self.views)
    @rule(num_tokens=LENGTHS)
    def read(self, num_tokens):
        """Of who must load, by medium from the nearest on."""
        views = {name: view for name, view in self.views.items() if name not in self.silent}
        points = {
            name: tuple(
                view.longest_resume(HASHES, num_tokens, media=media).num_tokens
                for media in (["GPU"], ["GPU", "CPU"], ["GPU", "CPU", "STORAGE"], ["GPU", "CPU", "STORAGE", "redis"])
            )
            for name, view in views.items()
        }
        found = self.index.read(HASHES, num_tokens)
        assert found.resumes == {name: own[-1] for name, own in points.items() if own[-1]}
        assert found.loads == {name: own for name, own in points.items() if own[0] < own[-1]}

    @invariant()
    def tells_what_it_does_not_know(self):
        for name, view in getattr(self, "views", {}).items():
            assert self.index.is_complete(name) == (view.is_complete and name not in self.silent)
            assert self.index.num_dropped_events(name) == view.num_dropped_events

    @invariant()
    def counts_each_engines_blocks(self):
        for name in getattr(self, "views", {}):
            blocks, bit = self.index._blocks, self.index._engines[name].bit
            tables = [
                table for groups in blocks._places.values() for group in groups for table in group.by_size.values()
            ]
            count = sum(bool(bits & bit) for table in tables for bits in table.values())
            assert self.index.num_blocks_of(name) == sum(self.index.num_blocks_on(name).values()) == count

    def tell(self, data, *events):
        name = self.some_engine(data)
        self.index.apply(name, events)
        self.views[name].apply(events)
        self.silent.discard(name)

    def some_engine(self, data):
        return data.draw(st.sampled_from(sorted(self.views)))

    @staticmethod
    def stored(hashes, group, size, medium, ownership, with_tokens):
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=None,
            token_ids=[1] if with_tokens else [],
            block_size=size,
            lora_id=None,
            medium=medium,
            lora_name=None,
            group_idx=group,
            ownership=ownership,
        )


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=30)

FULL = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=8)


class Expecting(RuleBasedStateMachine):
    """Prompts are sent to engines, which lose what they hold at any moment."""

    def __init__(self):
        super().__init__()
        self.index = FleetIndex([FULL], hash_block_size=4, clears_all_media=True)
        for name in TWO:
            self.index.add_engine(name)
        self.sent = []
        """The engine, what is expected of it, and the tokens that count: 0 once the engine has lost them."""

    @rule(name=st.sampled_from(TWO), num_blocks=st.integers(1, 3))
    def send(self, name, num_blocks):
        tokens = 4 * num_blocks
        self.sent.append([name, self.index.expect(name, HASHES[:num_blocks], tokens + 1), tokens])

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 5))
    def answer(self, which):
        name, expectation, _ = self.sent.pop(which % len(self.sent))
        self.index.expect_no_more(name, expectation)

    @rule(name=st.sampled_from(TWO), how=st.sampled_from(["clear", "resync", "restart", "leave"]), sweeps=st.booleans())
    def lose(self, name, how, sweeps):
        """The next batches sweep what is gone."""
        match how:
            case "clear":
                self.index.apply(name, [AllBlocksCleared()])
            case "leave":
                self.index.remove_engine(name)
                self.index.add_engine(name)
            case _:
                getattr(self.index, how)(name)
        for of_prompt in self.sent:
            of_prompt[2] *= of_prompt[0] != name
        for _ in range(8 * sweeps):
            self.index.apply(name, [])

    @invariant()
    def counts_what_is_expected(self):
        counts = {name: max((tokens for own, _, tokens in self.sent if own == name), default=0) for name in TWO}
        assert self.index.resumes(HASHES, 17) == {name: tokens for name, tokens in counts.items() if tokens}


TestExpecting = Expecting.TestCase


def test_a_part_of_an_encoders_block_is_dropped_and_no_prompt_is_at_fault():
    """An encoder's blocks are hashed whole, so no hash names a part of one. The next prompt's look-up failed."""
    index = FleetIndex([FULL, CrossAttentionSpec(block_size=8, num_kv_heads=1, head_size=8)], hash_block_size=4)
    index.add_engine("a")
    index.apply("a", [Fleet.stored(HASHES[:2], 1, 4, "GPU", None, True)])
    assert index.read(HASHES, 17).resumes == {}
    assert index.num_dropped_events("a") == 1


def test_a_plan_whose_blocks_do_not_fit_is_refused_as_a_peers_mistake():
    plan = PublishedPlan(hash_block_size=16, groups=[PublishedGroup(kind="full_attention", block_size=24)])
    with pytest.raises(InputError, match=r"block_size = 24 .* hash_block_size = 16"):
        Indexes().find(plan, algorithm="sha256_cbor", seed="")


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"hash_block_size": 16, "groups": [(16, 257)]}, "its 257 groups have 16.1 blocks for each token"),
        ({"hash_block_size": 1, "groups": [(1, 16), (1 << 20, 1)]}, "its 17 groups have 16.0 blocks for each token"),
        ({"hash_block_size": 1 << 62, "groups": [(1 << 62, 1)]}, "hash_block_size must be a whole number of 1 to"),
    ],
)
def test_a_plan_for_which_every_request_would_wait_is_refused_as_a_peers_mistake(plan, told):
    """With 1,024 groups in blocks of one token, a prompt of 20,000 held up all others for six seconds."""
    groups = [
        PublishedGroup(kind="full_attention", block_size=size) for size, num in plan["groups"] for _ in range(num)
    ]
    with pytest.raises(InputError, match=told):
        Indexes().find(
            PublishedPlan(hash_block_size=plan["hash_block_size"], groups=groups), algorithm="sha256_int32", seed=""
        )


def test_a_prompt_that_is_answered_late_takes_nothing_from_a_later_one():
    """Its engine has cleared its cache twice meanwhile, and has the same bit again."""
    machine = Expecting()
    machine.send(name="a", num_blocks=1)
    machine.lose(name="a", how="clear", sweeps=True)
    machine.lose(name="a", how="clear", sweeps=True)
    machine.send(name="a", num_blocks=1)
    machine.answer(which=0)
    machine.counts_what_is_expected()


STATE = MambaSpec(block_size=4, shapes=((4,),), dtypes=(CacheDType.FLOAT32,))


def test_attention_without_its_state_is_worth_nothing():
    index = FleetIndex([FULL, STATE], hash_block_size=4)
    for name in ("long", "short"):
        index.add_engine(name)
    index.apply("long", [Fleet.stored(HASHES, 0, 4, "GPU", None, False)])
    index.apply(
        "short",
        [Fleet.stored(HASHES[:8], 0, 4, "GPU", None, False), Fleet.stored([HASHES[7]], 1, 4, "GPU", None, False)],
    )
    assert index.resumes(HASHES, 97) == {"short": 32}
    assert index.resumes(HASHES, 97, needs_checkpoints=False) == {"long": 96, "short": 32}


def test_a_prompt_that_was_sent_counts_until_it_is_answered():
    index = FleetIndex([FULL, STATE], hash_block_size=4)
    index.add_engine("a")
    index.add_engine("b")
    first, second = index.expect("a", HASHES[:10], 41), index.expect("a", HASHES[:10], 41)
    assert index.resumes(HASHES, 97) == {"a": 40}
    assert index.resumes(HASHES, 97, media=["GPU"]) == {}
    index.expect_no_more("a", first)
    assert index.resumes(HASHES, 97) == {"a": 40}
    index.apply("a", [Fleet.stored(HASHES[:10], 0, 4, "GPU", None, False)])
    index.expect_no_more("a", second)
    assert index.resumes(HASHES, 97, needs_checkpoints=False) == {"a": 40}
    assert index.resumes(HASHES, 97) == {}
    assert index.is_complete("a")


@pytest.mark.parametrize("others", [[], ["b"]])
def test_what_is_expected_of_an_engine_that_restarts_or_leaves_is_forgotten(others):
    index = FleetIndex([FULL], hash_block_size=4)
    for name in ["a", *others]:
        index.add_engine(name)
    before = index.expect("a", HASHES, 97)
    index.restart("a")
    after = index.expect("a", HASHES, 97)
    index.expect_no_more("a", before)
    assert index.resumes(HASHES, 97) == {"a": 96}
    index.remove_engine("a")
    index.expect_no_more("a", after)
    assert index.resumes(HASHES, 97) == {}


def test_what_is_gone_is_swept_and_its_bit_used_again():
    index = FleetIndex([FULL], hash_block_size=4)
    index.add_engine("stays")
    for _ in range(200):
        index.add_engine("comes and goes")
        index.apply("comes and goes", [Fleet.stored(HASHES, 0, 4, "GPU", None, False)])
        index.apply("stays", [])
        index.remove_engine("comes and goes")
    for _ in range(4):
        index.apply("stays", [])
    assert index.num_blocks == 0
    index.add_engine("new")
    assert index.resumes(HASHES, 97) == {}


def test_what_is_gone_does_not_pile_up_however_much_an_engine_tells_at_once():
    index = FleetIndex([FULL], hash_block_size=4)
    index.add_engine("stays")
    index.add_engine("begins anew")
    per_life, lives = 10_000, 40
    for life in range(lives):
        index.resync("begins anew")
        told = range(life * per_life, (life + 1) * per_life)
        index.apply("begins anew", [Fleet.stored(list(told), 0, 4, "GPU", None, False)])
    assert index.num_blocks < 6 * per_life


@pytest.mark.parametrize(
    ("told", "own"),
    [
        (lambda number: (4 * number, "GPU"), (4 * 1024, "GPU")),
        (lambda number: (4, f"medium {number}"), (4, "CPU")),
    ],
    ids=["sizes", "media"],
)
def test_an_engine_that_tells_ever_other_sizes_or_media_takes_no_room_from_others(told, own):
    index = FleetIndex([FULL], hash_block_size=4)
    for name in ("ever others", "one"):
        index.add_engine(name)
    for number in range(2, 2000):
        size, medium = told(number)
        index.apply("ever others", [Fleet.stored([number], 0, size, medium, None, False)])
    index.apply("one", [Fleet.stored([1], 0, *own, None, False)])
    assert (index.num_dropped_events("one"), index.num_blocks_of("one")) == (0, 1)
    assert [index.is_complete(name) for name in ("one", "ever others")] == [True, False]


def test_sizes_and_media_of_engines_that_have_left_take_no_room():
    index = FleetIndex([FULL], hash_block_size=4)
    index.add_engine("stays")
    index.apply("stays", [Fleet.stored(HASHES, 0, 4, "GPU", None, False)])
    for life in range(2000):
        index.add_engine("new")
        index.apply("new", [Fleet.stored([1], 0, 4 * (life + 2), f"medium {life}", None, False)])
        index.apply("new", [Fleet.stored([1], 0, 4 * (life + 2), "GPU", None, False)])
        assert index.num_dropped_events("new") == 0
        index.remove_engine("new")
        index.apply("stays", [])
    assert index.resumes(HASHES, 97) == {"stays": 96}


def test_an_engine_that_tells_more_blocks_than_there_is_room_for_is_forgotten(monkeypatch):
    """It has lost the removals, say. What others hold is known as before."""
    monkeypatch.setattr("octavo.events.held_blocks._MOST_BLOCKS", 1000)
    index = FleetIndex([FULL], hash_block_size=4)
    for name in ("tells no removals", "one"):
        index.add_engine(name)
    index.apply("one", [Fleet.stored(HASHES, 0, 4, "GPU", None, False)])
    for start in range(1000, 20_000, 100):
        told = list(range(start, start + 100))
        index.apply("tells no removals", [Fleet.stored(told, 0, 4, "GPU", None, False)])
        assert index.num_blocks < 4000
    assert index.num_blocks_of("tells no removals") <= 1000
    index.told_all("tells no removals")
    assert not index.is_complete("tells no removals")
    assert index.is_complete("one")
    assert index.resumes(HASHES, 97) == {"one": 96}


def test_a_name_is_used_once():
    index = FleetIndex([FULL], hash_block_size=4)
    index.add_engine("a")
    with pytest.raises(InputError, match="'a'"):
        index.add_engine("a")
