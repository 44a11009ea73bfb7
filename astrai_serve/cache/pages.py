"""Which pages of the cache are free. Numbers only: the keys and values lie in `storage`.

A page has one owner at a time, so this is a free list with a check. Sharing pages between sequences (a prefix index)
will need counts here, and nothing else in the engine has to change for it.
"""

from collections.abc import Iterable

from astrai_serve.errors import ServeError


class PagePool:
    """Pages 0 to `num_pages` - 1, each of `page_size` tokens.

    Not thread-safe: the engine's loop is its only user.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 1 or page_size < 1:
            got = f"{num_pages} pages of {page_size} tokens"
            raise ServeError(
                "a cache needs at least one page of one token",
                where="num_pages, page_size",
                got=got,
                wanted="1 or more of each",
                hint="raise --cache-tokens",
            )
        self.num_pages, self.page_size = num_pages, page_size
        self._free = list(range(num_pages))[::-1]  # taken from the end, so that low pages come first
        self._is_free = [True] * num_pages

    @property
    def num_free(self) -> int:
        """Pages that nobody owns."""
        return len(self._free)

    @property
    def num_tokens(self) -> int:
        """Tokens that all pages together hold."""
        return self.num_pages * self.page_size

    def pages_for(self, num_tokens: int) -> int:
        """How many pages that many tokens of one sequence take."""
        return -(-num_tokens // self.page_size)

    def can_allocate(self, count: int) -> bool:
        """Whether so many pages are free."""
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free pages: all of them or, with an error, none.

        Raises:
            ServeError: fewer are free; ask `can_allocate` first.
        """
        if not self.can_allocate(count):
            raise ServeError(
                "the cache has too few free pages",
                where="the page pool",
                got=len(self._free),
                wanted=count,
                hint="ask `num_free` first, or give the pool more pages",
            )
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._is_free[page] = False
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Give pages back.

        Raises:
            ServeError: a page that is free already, or none of this pool; those before it are given back.
        """
        for page in pages:
            if not 0 <= page < self.num_pages or self._is_free[page]:
                raise ServeError(
                    "a page is freed that nobody owns",
                    where="the page pool",
                    got=page,
                    wanted="an allocated page",
                    hint="free each page once",
                )
            self._is_free[page] = True
            self._free.append(page)
