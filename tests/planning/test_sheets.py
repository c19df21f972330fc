from hypothesis import given, strategies as st

from octavo.planning.sheets import PageDemand, cut_sheets

demands = st.lists(
    st.builds(PageDemand, page_units=st.integers(1, 400_000), pages_per_request=st.integers(0, 9000)),
    min_size=1,
    max_size=4,
).filter(lambda ds: any(d.pages_per_request for d in ds))


@given(demands=demands, extra=st.integers(0, 1 << 26))
def test_pages_are_equal_parts_of_a_sheet_and_large_enough(demands, extra):
    cut = cut_sheets(demands, max(d.page_units for d in demands) + extra)
    for demand, pages in zip(demands, cut.pages_per_sheet, strict=True):
        assert pages >= 1
        assert cut.sheet_units % pages == 0
        assert cut.sheet_units // pages >= demand.page_units


def test_pages_of_any_size_are_cut_at_once():
    """A config may ask for anything."""
    for page_units in (10**12 + 39, 10**9 + 7, (1 << 22) + 1):
        cut = cut_sheets([PageDemand(page_units=units, pages_per_request=1) for units in (page_units, 11)], 10**14)
        assert cut.sheet_units // cut.pages_per_sheet[0] >= page_units


def test_pages_of_one_size_are_sheets():
    cut = cut_sheets([PageDemand(page_units=7, pages_per_request=3)] * 2, 1000)
    assert (cut.sheet_units, cut.pages_per_sheet) == (7, (1, 1))


def test_two_sizes_that_fit_badly_into_each_other_get_a_sheet_that_holds_several_of_both():
    cut = cut_sheets(
        [PageDemand(page_units=300, pages_per_request=10), PageDemand(page_units=200, pages_per_request=10)], 10**6
    )
    assert (cut.sheet_units, cut.pages_per_sheet) == (600, (2, 3))
