// Keeps the text that is being written in sight, until the reader scrolls up.

/** Milliseconds between looks: to scroll with each token would cost more than to draw it. */
const PAUSE = 400;
/** Pixels below the text that are shown too, so that the next line can be seen as it is written. */
const LINE = 32;

export class Follower {
  #following = true;
  #last = 0;
  #down = false;
  #cover;
  #timer = null;
  #find = null;

  /** `cover` is the element at the screen's foot that hides what is beneath it. */
  constructor(cover) {
    this.#cover = cover;
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  /** Follows from now on. */
  begin() {
    this.#following = true;
  }

  /** Scrolls down soon, until the foot of an element can be seen, which `find` returns then (null: none is there yet);
   *  not while the reader looks at what is further up. */
  keep(find) {
    this.#find = find;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      const element = this.#find();
      if (element !== null) this.#reveal(element.getBoundingClientRect().bottom);
    }, PAUSE);
  }

  #reveal(bottom) {
    const beyond = bottom - this.#cover.getBoundingClientRect().top;
    // A reader who comes back to the text follows it again.
    if (this.#down && beyond <= 0) this.#following = true;
    if (this.#following && beyond > -LINE) scrollBy({ top: beyond + 2 * LINE, behavior: "instant" });
  }

  #scrolled() {
    this.#down = scrollY > this.#last;
    if (scrollY < this.#last) this.#following = false;
    this.#last = scrollY;
  }
}
